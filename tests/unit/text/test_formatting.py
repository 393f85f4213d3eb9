"""Numbers with their nouns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from boyd.text.formatting import counted

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("number", "noun", "plural", "text"),
    [
        (0, "run", None, "0 runs"),
        (1, "run", None, "1 run"),
        (2, "entry", "entries", "2 entries"),
        (1, "host is", "hosts are", "1 host is"),
    ],
)
def test_a_number_has_its_noun_in_the_right_form(
    number: int, noun: str, plural: str | None, text: str
) -> None:
    assert counted(number, noun, plural) == text


def test_no_text_leaves_the_plural_to_the_reader() -> None:
    plurals = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for folder in ("shared", "worker", "api", "examples", "docs")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in {".py", ".md", ".toml", ".html"}
        for match in re.finditer(r"[a-z]+\((?:s|es|ies)\) (?:are|is|have|were)\b", path.read_text())
    ]
    assert plurals == []
