"""Texts as hypervectors, the same on every worker."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from boyd.errors import ConfigError
from boyd_goals import tool_profiles
from boyd_goals.tool_profiles import (
    DIMENSIONS,
    NOISE,
    bundle,
    content_words,
    encode,
    similarity,
    token_vector,
)

SAMPLE = """
from boyd_goals.tool_profiles import encode, similarity
from boyd_goals.tool_profiles import PROFILES, vector
from boyd_goals.tool_profiles import token_vector
import hashlib
print(hashlib.sha256(token_vector("mammal").tobytes()).hexdigest())
print(repr(similarity(encode("read data from the file"), vector(PROFILES["file_io"].keywords))))
"""


def sample_similarities(seed: str) -> str:
    """Similarities computed by another process, with another seed of its hashes."""
    run = subprocess.run(
        [sys.executable, "-c", SAMPLE],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout


def test_a_token_has_10_000_dimensions_of_1_and_minus_1() -> None:
    vector = token_vector("mammal")

    assert DIMENSIONS == 10_000
    assert vector.shape == (10_000,)
    assert set(vector.tolist()) == {1, -1}


def test_a_token_is_the_bits_of_a_hash_that_is_the_same_everywhere() -> None:
    digest = hashlib.shake_256(b"mammal").digest(1250)
    bits = [(byte >> (7 - place)) & 1 for byte in digest for place in range(8)]

    assert token_vector("mammal").tolist() == [1 if bit else -1 for bit in bits]


@pytest.mark.long
def test_two_processes_say_the_same_to_the_last_digit() -> None:
    assert sample_similarities("1") == sample_similarities("2")


def test_the_same_text_has_similarity_1_and_an_unrelated_one_about_a_half() -> None:
    assert similarity(encode("find mammals"), encode("Mammals: find!")) == 1.0
    assert similarity(encode("find mammals"), encode("xyzzy plugh")) == pytest.approx(
        0.5, abs=4 * NOISE
    )
    assert pytest.approx(0.005) == NOISE


def test_similarity_of_a_sum_follows_the_share_in_common() -> None:
    assert similarity(encode("red green"), encode("red blue")) == pytest.approx(0.75, abs=0.02)


@pytest.mark.parametrize("text", ["", "   ", "?! -", "to of it", "the and for that this from with"])
def test_a_text_without_words_is_like_nothing(text: str) -> None:
    assert similarity(encode(text), encode("find mammals")) == 0.5
    assert similarity(encode(text), encode(text)) == 0.5


def test_words_that_count_are_bare_singular_and_not_function_words() -> None:
    text = 'What did "those" Papers say, about the file report.txt -- in it?'

    assert content_words(text) == [
        "what",
        "did",
        "those",
        "paper",
        "say",
        "about",
        "file",
        "report.txt",
    ]


def test_bundles_are_exact_sums_of_integers() -> None:
    first, other = token_vector("red"), token_vector("blue")

    assert bundle({"red": 2, "blue": 1}).tolist() == (2 * first.astype(int) + other).tolist()
    assert bundle({}).tolist() == [0] * DIMENSIONS


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)

    with pytest.raises(ConfigError, match=r"need numpy.*pip install 'boyd\[goals\]'"):
        tool_profiles.bundle({"red": 1})


@pytest.mark.long
def test_scoring_turtle_and_rules_import_neither_numpy_nor_rdflib() -> None:
    code = (
        "import sys, boyd_goals.scoring\n"
        "import boyd_goals.knowledge.turtle, boyd_goals.knowledge.reasoning\n"
        "print(sorted({'numpy', 'rdflib'} & sys.modules.keys()))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout == "[]\n"
