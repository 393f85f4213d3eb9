"""Texts are cut into passages, found by their words, and bounded."""

from __future__ import annotations

import pytest

from boyd_goals import library
from boyd_goals.library import PASSAGES, Library
from goals_kit import Mind


@pytest.fixture
def books() -> Library:
    return Library(Mind().ctx.state)


def test_the_passage_with_most_of_the_words_comes_first(books: Library) -> None:
    books.add("Whales", "The whale sings.\n\n" + "x " * 395 + "\n\nWhale songs are long.", "text")
    books.add("Birds", "A bird has songs, too.", "text")
    hits = books.search("long songs of a whale", 5)

    assert hits[0].text == "Whale songs are long."
    assert {hit.title for hit in hits} == {"Whales", "Birds"}
    assert len(books.search("songs", 1)) == 1


def test_nothing_is_found_where_no_word_fits(books: Library) -> None:
    assert books.search("whale", 5) == []
    books.add("Birds", "A bird has songs.", "text")
    assert books.search("whale", 5) == []


def test_a_document_of_the_same_title_takes_the_place_of_the_old_one(books: Library) -> None:
    books.add("Whales", "The whale sings.", "text")
    books.add("Whales", "The dolphin whistles.", "text")

    assert books.search("sings", 5) == []
    assert [passage.text for passage in books.search("whistles", 5)] == ["The dolphin whistles."]


def test_of_too_many_documents_the_oldest_are_forgotten(
    books: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "DOCUMENTS", 3)
    for number in range(5):
        books.add(f"Book {number}", "The whale sings.", "text")

    assert {hit.title for hit in books.search("whale", 9)} == {"Book 2", "Book 3", "Book 4"}
    assert books._state.get_many([library._key("Book 0"), library._key("Book 4")]).keys() == {
        library._key("Book 4")
    }


@pytest.mark.parametrize("text", ["鯨" * 900_000, "🐋 " * 400_000, "a\n\n" * 100_000, ""])
def test_a_text_of_any_length_and_script_fits(books: Library, text: str) -> None:
    passages, about = books.add("Whales", text, "text")

    assert passages <= PASSAGES
    assert len(about) <= library.ABOUT


def test_the_list_of_documents_fits_whatever_they_are_about(
    books: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "BYTES", 20_000)
    for number in range(12):
        words = " ".join(
            f"{chr(0x4E00 + number)}{chr(0x5000 + character) * 30}" for character in range(40)
        )
        books.add(f"Book {number}", words, "text")
    index = books._state.get("library")

    assert 1 < len(index) < 12
    assert index[-1]["title"] == "Book 11"
