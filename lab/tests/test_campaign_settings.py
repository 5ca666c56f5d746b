"""Which points are compared: those that do the same over the same link, whatever case of the plan they are from."""

from collections.abc import Mapping, Sequence

import polars as pl

from bentpipe_lab.analysis import campaign as analysis
from bentpipe_lab.analysis.campaign import PointRow
from bentpipe_lab.records.tables import AXIS


def rows(*points: Mapping[str, str]) -> list[PointRow]:
    """A run of each point."""
    names = list(dict.fromkeys(name for axes in points for name in axes))
    runs = [
        {
            "point": f"point {place}", "clock": "real", "place": place, "repetition": 1, "attempt": 1, "verdict": "ok",
            "counts": True, "seconds": 1.0, "figure": 1.0, "bytes_received": 1, "bound_s": 1.0, "limit_s": 9.0,
            "workload": axes["workload"], **{f"{AXIS}{name}": axes.get(name) for name in names},
        }
        for place, axes in enumerate(points)
    ]  # fmt: skip
    return analysis.rows(pl.DataFrame(runs, infer_schema_length=None))


def pairs(found: Sequence[PointRow]) -> set[tuple[str, str, str]]:
    return {
        (", ".join(row.setting.values()), base.variant, row.variant)
        for base, others in analysis.settings(found)
        for row in others
    }


def test_a_proxy_is_compared_with_the_path_without_it_whatever_case_it_is_from() -> None:
    """As in the campaign of Kosek et al., where what only one system carries is a case of its own."""
    found = rows(
        {"case": "TCP and QUIC", "scenario": "geo", "system": "direct", "workload": "iperf3"},
        {"case": "TCP and QUIC", "scenario": "geo", "system": "tcp-pep", "workload": "iperf3"},
        {"case": "TCP and QUIC", "scenario": "geo", "system": "direct", "workload": "perf"},
        {"case": "QUIC PEP", "scenario": "geo", "system": "quic-pep", "workload": "perf"},
        {"case": "HTTP/3 PEP", "scenario": "geo", "system": "quic-pep", "workload": "web page",
         "transport.mode": "h3-capable"},
    )  # fmt: skip
    assert pairs(found) == {
        ("geo, iperf3", "direct", "tcp-pep"),
        ("geo, perf", "direct", "quic-pep"),
    }


def test_cases_that_name_what_they_set_stay_apart() -> None:
    """Without their cases nobody could tell these from each other."""
    fields = {"scenario": "geo", "system": "quic", "workload": "perf"}
    found = rows(
        *(
            {"case": case, "scenario.forward.queue": queue, "controller": controller, **fields}
            for case, queue in (("half a BDP", "37500 B"), ("one BDP", "75 kB"))
            for controller in ("newreno", "bbr3")
        ),
        {"case": "again", "transport.warm": "1 MB", "controller": "bbr3", "scenario.forward.queue": "75 kB", **fields},
    )
    assert pairs(found) == {
        ("half a BDP", "quic newreno", "quic bbr3"),
        ("one BDP", "quic newreno", "quic bbr3"),
    }


def test_cases_that_share_nothing_name_what_they_are() -> None:
    found = rows(
        {"case": "transfers", "scenario": "geo", "system": "quic", "workload": "download"},
        {"case": "pages", "scenario": "geo", "system": "direct", "workload": "web page"},
    )
    assert [row.setting["case"] for row in found] == ["transfers", "pages"]


def test_what_has_no_session_is_compared_with_what_has_one() -> None:
    """As over Iridium, where the tunnel has a new session for each run, and plain TCP none."""
    fields = {"scenario": "iridium", "workload": "web page"}
    found = rows(
        *({"system": system, "workload.page": page, **fields} for system in ("direct", "tcp-pep") for page in "12"),
        *({"system": "bentpipe", "session": "cold", "workload.page": page, **fields} for page in "12"),
    )
    assert pairs(found) == {
        (f"{page}, iridium, web page", "direct", system) for page in "12" for system in ("tcp-pep", "bentpipe cold")
    }


def test_where_sessions_would_make_too_many_variants_they_are_compared_all_the_same() -> None:
    windows = [str(window) for window in range(10, 16)]
    fields = {"scenario": "geo", "workload": "download"}
    found = rows(
        *({"system": "quic", "initial_window": window, **fields} for window in windows),
        *(
            {"system": "bentpipe", "session": session, "initial_window": window, **fields}
            for session in ("cold", "warm")
            for window in windows
        ),
    )
    assert {row.setting.get("session") for row in found} == {None, "cold", "warm"}
    assert len(list(analysis.settings(found))) == 1


def test_where_all_have_sessions_these_are_settings() -> None:
    fields = {"scenario": "geo", "system": "bentpipe", "workload": "iperf3"}
    found = rows(
        *(
            {"session": session, "controller": controller, **fields}
            for session in ("cold", "warm")
            for controller in ("satellite", "cubic")
        )
    )
    assert pairs(found) == {
        (f"{session}, geo, iperf3", "bentpipe satellite", "bentpipe cubic") for session in ("cold", "warm")
    }
