from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boyd.plugins.shell.runner import CapturedOutput

MARK = re.compile(r"\n\[(\d+) bytes omitted\]\n")


def capture(data: bytes, limit: int = 1024, size: int = 100) -> CapturedOutput:
    output = CapturedOutput(limit)
    for at in range(0, len(data), size):
        output.add(data[at : at + size])
    return output


@pytest.mark.parametrize("length", [0, 1, 1023, 1024])
def test_output_up_to_the_limit_is_kept_whole(length: int) -> None:
    output = capture(b"x" * length)
    assert (output.text(), output.is_truncated, output.total) == ("x" * length, False, length)


def test_more_keeps_head_and_tail_and_tells_how_many_bytes_are_missing() -> None:
    output = capture(b"head" + b"-" * 100_000 + b"tail")
    text = output.text()
    assert output.is_truncated
    assert output.total == 100_008
    assert text.startswith("head-")
    assert text.endswith("-tail")
    head, omitted, tail = MARK.split(text)
    assert len(head) + int(omitted) + len(tail) == output.total


def test_one_byte_too_many_is_cut_too() -> None:
    assert capture(b"x" * 1025).is_truncated


@given(st.text(min_size=300, max_size=3000), st.integers(1, 700))
def test_characters_are_never_cut_in_two(text: str, size: int) -> None:
    data = text.encode()
    output = capture(data, 1024, size)
    parts = MARK.split(output.text())
    if not output.is_truncated:
        assert parts == [text]
    elif len(parts) == 3:
        assert text.startswith(parts[0])
        assert text.endswith(parts[2])
        assert len((parts[0] + parts[2]).encode()) + int(parts[1]) == len(data)


@given(st.binary(max_size=5000), st.integers(1, 700))
def test_any_output_becomes_text_within_the_limit(data: bytes, size: int) -> None:
    output = capture(data, 1024, size)
    assert len(output.text().encode()) <= 1024
    assert output.total == len(data)


def test_bytes_that_are_no_text_become_question_marks() -> None:
    assert capture(b"caf\xe9 \xff\x80").text() == "caf? ??"


def test_memory_stays_bounded() -> None:
    output = capture(b"x" * 5_000_000, 1024, 65536)
    assert len(output._head) + len(output._tail) < 5 * 65536
