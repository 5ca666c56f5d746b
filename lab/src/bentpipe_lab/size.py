"""Sizes as a plan writes them."""

import re

UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
MOST = 1 << 30
"""A server keeps the whole file on disk."""


def size(text: str) -> int:
    """Bytes; a `ValueError` tells what would be right."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kKMG]?i?B)", text)
    if match is None or match[2] not in UNITS:
        raise ValueError(f'give a number and a unit, like "25 kB" or "10 MiB"; units are {", ".join(UNITS)}')
    exact = float(match[1]) * UNITS[match[2]]
    if exact != int(exact) or not 1 <= exact <= MOST:
        raise ValueError(f"give whole bytes, from 1 B to {MOST >> 30} GiB")
    return int(exact)
