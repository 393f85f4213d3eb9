"""Numbers with their nouns, in the singular and in the plural."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun, as in `1 run` and `2 runs`.

    Args:
        number: how many.
        noun: the noun, in the singular.
        plural: the same in the plural; without it *noun* with an s.
    """
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"
