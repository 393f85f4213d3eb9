"""Keywords and parts of criteria."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boyd.text.tokenizer import STOP, is_place, keywords, tokens, words
from boyd_goals.progress import clip, split_criteria
from boyd_goals.tool_profiles import FUNCTION_WORDS, PROFILES


@pytest.mark.parametrize(
    ("criteria", "expected"),
    [
        ("Find mammals", ["find", "mammal"]),
        ("find MAMMALS, mammal and a Mammal!", ["find", "mammal"]),
        ("the planets of the cities", ["planet", "city"]),
        ("What is the art of it?", ["art"]),
        ("find art in no time", ["find", "art", "time"]),
        ("IP and DNS at 10", ["ip", "dns"]),
        ("is it up", ["up"]),
        ("", []),
        ("!!! ...", []),
        ("the and", []),
        ("naïve Straße", ["naïve", "straße"]),
        ("findMammals", ["find", "mammal"]),
        ("disk's space", ["disk", "space"]),
        ("has_part_of", ["part"]),
        ("What did that paper say about gravity?", ["paper", "say", "gravity"]),
        ("if so, find more out of it, like others do", ["find"]),
        ("how about more", []),
        ("Ingest the document /srv/notes/gravity.txt", ["ingest", "document"]),
        ("Fetch https://x.org/a/b?c=d and data/new/list.csv.", ["fetch"]),
        ("TCP/IP of report.txt", ["tcp", "ip", "report", "txt"]),
    ],
)
def test_keywords_are_the_distinct_stems_of_what_can_be_found(
    criteria: str, expected: list[str]
) -> None:
    assert keywords(criteria) == expected


@given(st.text(max_size=80))
def test_keywords_are_words_as_the_graph_has_them(text: str) -> None:
    symbols = keywords(text)

    assert len(symbols) == len(set(symbols))
    assert set(symbols) <= set().union(*map(words, tokens(text)))


def test_addresses_and_paths_are_one_token_and_no_place_hides_in_a_word() -> None:
    text = "Read ./a.txt, /etc/hosts. and https://x.org/a?b=c), then and/or self-made report.txt"
    symbols = tokens(text)

    assert [symbol for symbol in symbols if is_place(symbol)] == [
        "/etc/hosts",
        "https://x.org/a?b=c",
    ]
    assert symbols[-3:] == ["or", "self-made", "report.txt"]


def test_there_is_one_list_of_stop_words_and_the_encoding_takes_its_few_from_it() -> None:
    assert FUNCTION_WORDS < STOP
    assert {"about", "what"} <= {
        word for profile in PROFILES.values() for word in profile.keywords
    } & STOP


@pytest.mark.parametrize(
    ("criteria", "parts"),
    [
        ("a, b", ["a", "b"]),
        ("a and b", ["a", "b"]),
        ("a AND b And c", ["a", "b", "c"]),
        ("a, and b", ["a", "b"]),
        ("a ,and b", ["a", "b"]),
        ("a,b,,c,", ["a", "b", "c"]),
        ("a\nand\tb", ["a", "b"]),
        ("sand and land", ["sand", "land"]),
        ("an android, a band", ["an android", "a band"]),
        ("understanding", ["understanding"]),
        ("and", ["and"]),
        ("and b", ["and b"]),
        ("a and and b", ["a", "and b"]),
        ("  x  ", ["x"]),
        (" , ", []),
        ("", []),
    ],
)
def test_criteria_are_split_on_commas_and_the_word_and(criteria: str, parts: list[str]) -> None:
    assert split_criteria(criteria) == parts


@given(st.lists(st.sampled_from(["sand", "band", "x", "andy"]), min_size=1, max_size=8))
def test_parts_without_the_word_come_back_as_they_were(parts: list[str]) -> None:
    assert split_criteria(", ".join(parts)) == parts
    assert split_criteria(" and ".join(parts)) == parts


@pytest.mark.parametrize(
    ("text", "expected"), [("äöü", "äöü"), ("12345", "12345"), ("123456", "12...")]
)
def test_text_is_cut_by_characters(text: str, expected: str) -> None:
    assert clip(text, 5) == expected
