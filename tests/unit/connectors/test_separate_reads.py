"""One thing that cannot be read, or is slow, hides no other."""

from __future__ import annotations

import pytest

from boyd_connectors.connector_parts import SeparateReads


class Things:
    """Things that take some seconds each to be read, and of which some fail."""

    def __init__(self, **seconds: float) -> None:
        self.seconds = seconds
        self.broken: set[str] = set()
        self.asked: list[str] = []
        self.now = 0.0

    def read(self, name: str) -> str:
        self.asked.append(name)
        self.now += self.seconds[name]
        if name in self.broken:
            raise LookupError(f"{name} is gone")
        return name.upper()


def reads(things: Things, seconds: float = 10) -> SeparateReads:
    return SeparateReads(seconds, lambda: things.now)


def test_a_read_that_fails_is_named_and_the_others_are_made() -> None:
    things = Things(a=1, b=1, c=1)
    things.broken = {"b"}

    assert reads(things).make("abc", things.read) == ({"a": "A", "c": "C"}, {"b": "b is gone"})


def test_a_slow_read_that_failed_comes_last_the_next_time() -> None:
    things = Things(a=11, b=1, c=1)
    things.broken = {"a"}
    reading = reads(things)
    with pytest.raises(LookupError, match="a is gone"):
        reading.make("abc", things.read)

    results, lost = reading.make("cba", things.read)
    assert list(results) == ["c", "b"]
    assert lost == {"a": "a is gone"}
    assert things.asked == ["a", "c", "b", "a"]


def test_a_read_without_time_left_is_named() -> None:
    things = Things(a=11, b=1)

    results, lost = reads(things).make("ab", things.read)
    assert (list(results), list(lost)) == (["a"], ["b"])
    assert "was not asked" in lost["b"]


def test_an_error_without_a_text_is_named_by_its_kind() -> None:
    def read(name: str) -> str:
        if name == "b":
            raise KeyError
        return name

    assert SeparateReads(10).make("ab", read)[1] == {"b": "KeyError"}


def test_nothing_to_read_is_no_error() -> None:
    assert SeparateReads(10).make([], str) == ({}, {})
