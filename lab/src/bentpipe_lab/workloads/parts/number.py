"""Whole numbers as a plan writes them."""


def whole(text: str) -> int:
    """A whole number from 1; a `ValueError` tells what would be right."""
    if not text.isdecimal() or not 1 <= int(text) <= 100_000:
        raise ValueError("give a whole number from 1 to 100000")
    return int(text)
