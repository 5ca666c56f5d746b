"""QPEP: 2 MB at 28 loss rates (section VII-C, figure 7), and ACK ratios of 1 to 30 (section VII-E, figure 10)."""

import math
from collections.abc import Sequence
from pathlib import Path

from bentpipe_lab.studies import plots, records
from bentpipe_lab.studies.records import Line
from bentpipe_lab.studies.section import Drawing, Section, Table, number

SHOWN = (1e-7, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
"""Rates for the table, or what is nearest; the drawing has all 28."""


def loss_rate(text: str) -> float:
    """A share from a percentage as scenarios write it."""
    return float(text.removesuffix("%")) / 100


def section(loss: Path, ack: Path) -> Section:
    """Goodput over loss and over the ACK ratio."""
    lossy, acked = records.lines(loss), records.lines(ack)
    return Section(
        "QPEP: loss and acknowledgements",
        "Pavur, Strohmeier, Lenders, Martinovic: QPEP, NDSS 2021, figures 7 and 10 (drawings: no numbers are printed).",
        [
            (
                "2 MB over 20/2 Mbit/s and 600 ms from the first packet on, 30 seeds at each of 28 loss rates. The"
                " publication finds that CUBIC under QPEP falls off long before Hybla under PEPsal; so it is here."
            ),
            (
                "ACK ratio: the publication found that goodput about doubles from one acknowledgement per packet to one"
                " for ten, on a return link of 7.4 MHz with an acknowledgement delay of 8 s; here the delay is 25 ms as"
                " in every QUIC, and a return link of 2 Mbit/s carries an acknowledgement for each packet."
            ),
        ],
        [_losses(lossy), _acks(acked)],
        [
            Drawing(
                plots.curves(
                    {
                        "2 MB": {
                            controller: [
                                (loss_rate(line.axes["link.forward.loss"]), (line.median_goodput_bit_s or 0.0) / 1e6)
                                for line in _of(lossy, controller)
                            ]
                            for controller in _controllers(lossy)
                        }
                    },
                    "loss rate",
                    "Mbit/s",
                    log_x=True,
                ),
                "Goodput over loss, as in figure 7; a transfer that did not end counts with what it got.",
            ),
            Drawing(
                plots.curves(
                    {
                        f"loss {rate}": {
                            controller: [
                                (int(line.axes["flow.ack_after"]) + 1.0, (line.median_goodput_bit_s or 0.0) / 1e6)
                                for line in _of(acked, controller)
                                if line.axes["link.forward.loss"] == rate
                            ]
                            for controller in _controllers(acked)
                        }
                        for rate in dict.fromkeys(line.axes["link.forward.loss"] for line in acked)
                    },
                    "packets per acknowledgement",
                    "Mbit/s",
                ),
                "Goodput of 5 MB over the ACK ratio, as in figure 10.",
            ),
        ],
    )


def _losses(lines: Sequence[Line]) -> Table:
    rates = list(dict.fromkeys(line.axes["link.forward.loss"] for line in lines))
    shown = [min(rates, key=lambda rate: abs(math.log(loss_rate(rate) / wanted))) for wanted in SHOWN]
    rows = []
    for controller in _controllers(lines):
        at = {line.axes["link.forward.loss"]: line for line in _of(lines, controller)}
        cells = [f"{number(at[rate].median_s, 2, ' s')} ({at[rate].n_ok}/{at[rate].n_total})" for rate in shown]
        half = (at[rates[0]].median_goodput_bit_s or 0.0) / 2
        falls = next((rate for rate in rates if (at[rate].median_goodput_bit_s or 0.0) < half), "-")
        rows.append([controller, *cells, falls])
    return Table("Median time of 2 MB, runs that ended well", ["controller", *shown, "goodput halved at"], rows)


def _acks(lines: Sequence[Line]) -> Table:
    ratios = (1, 2, 5, 10, 20, 30)
    rows = []
    for controller in _controllers(lines):
        for rate in dict.fromkeys(line.axes["link.forward.loss"] for line in lines):
            at = {
                int(line.axes["flow.ack_after"]) + 1: (line.median_goodput_bit_s or 0.0) / 1e6
                for line in _of(lines, controller)
                if line.axes["link.forward.loss"] == rate
            }
            rows.append([controller, rate, *[number(at.get(ratio)) for ratio in ratios]])
    head = ["controller", "loss", *[f"1:{ratio}" for ratio in ratios]]
    return Table("Goodput of 5 MB by ACK ratio, Mbit/s", head, rows)


def _of(lines: Sequence[Line], controller: str) -> Sequence[Line]:
    return [line for line in lines if line.axes["flow.controller"] == controller]


def _controllers(lines: Sequence[Line]) -> Sequence[str]:
    return list(dict.fromkeys(line.axes["flow.controller"] for line in lines))
