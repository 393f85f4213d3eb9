"""Values whose own methods do harm when somebody reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from pydantic import BaseModel


class EndlessDict(dict[str, Any]):
    """Has one item, and seems to have an endless number of them."""

    def items(self) -> Any:
        """Go on for ever."""
        return ((f"{number}", number) for number in count())

    def values(self) -> Any:
        """Go on for ever."""
        return count()


class EndlessList(list[Any]):
    """Has one item, and seems to have an endless number of them."""

    def __iter__(self) -> Iterator[Any]:
        return count()


class EndlessMapping(Mapping[str, Any]):
    """Has names without an end."""

    def __getitem__(self, name: str) -> int:
        return 1

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        return map(str, count())


class RaisingDict(dict[str, Any]):
    """Raises when its items are read."""

    def items(self) -> Any:
        """Raise."""
        raise SystemExit(4)


class RaisingText(str):
    """Raises when it is read."""

    __slots__ = ()

    def __str__(self) -> str:
        raise SystemExit(4)

    def __len__(self) -> int:
        raise SystemExit(4)


class RaisingNumber(int):
    """Raises when it is read."""

    def __int__(self) -> int:
        raise SystemExit(4)

    def __lt__(self, other: object) -> bool:
        raise SystemExit(4)


class Elusive:
    """Raises when its class is asked for, or its truth."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise SystemExit(4)

    def __bool__(self) -> bool:
        raise SystemExit(4)


def disguise(value: Any) -> Any:
    """The same value, of types whose methods raise or never end, as deep as it goes."""
    if isinstance(value, BaseModel):
        copied = value.model_copy()
        copied.__dict__.update({name: disguise(item) for name, item in value.__dict__.items()})
        return copied
    if isinstance(value, dict):
        return EndlessDict({name: disguise(item) for name, item in value.items()})
    if isinstance(value, list):
        return EndlessList(map(disguise, value))
    if isinstance(value, str):
        return RaisingText(value)
    return RaisingNumber(value) if type(value) is int else value
