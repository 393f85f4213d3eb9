"""Says amounts of money as people write them."""

from __future__ import annotations

from math import floor, log10


def dollars(amount: float) -> str:
    """An amount in plain decimals with two digits that count, as in `$1.25` and `$0.000021`."""
    if amount <= 0:
        return "$0"
    if amount >= 1:
        return f"${amount:.2f}"
    places = 1 - floor(log10(amount))
    return "$" + f"{amount:.{places}f}".rstrip("0").rstrip(".")
