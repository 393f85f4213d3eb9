"""Profiles of tools, and their likeness to a goal."""

from __future__ import annotations

import pytest

from boyd_goals import tool_profiles
from boyd_goals.scoring import CHANCE
from boyd_goals.tool_profiles import (
    PROFILES,
    SYNONYM,
    SYNONYMS,
    WORD,
    ToolProfile,
    content_words,
    encode,
    expand,
    similarity,
    vector,
)

#: What each sentence activates, the nearest first.
SENTENCES = {
    "What did that paper say about gravity?": ["library_search", "content_ingest"],
    "Find mammals": ["library_search"],
    "read data from the file report.txt": ["file_io", "content_ingest"],
    "save the results to a text file in the output folder": ["file_io", "content_ingest"],
    "fetch the web page and download the linked pdf": [
        *("http_fetch", "content_ingest", "library_search"),
    ],
    "get the response of the http api endpoint": ["http_fetch", "library_search"],
    "run the shell script that restarts the process": ["shell_exec"],
    "ask the user to confirm the change": ["user_interact"],
    "import this book into the library": ["content_ingest", "library_search", "file_io"],
    "consolidate memory and summarize the episode": ["consolidate"],
    "which facts are missing about Mars": ["library_search", "content_ingest"],
    "alpha beta": [],
    "xyzzy plugh frobnicate quux": [],
}
#: Tools that are always a candidate.
ADAPTIVE = {"infer_rules", "gap_analysis"}


def near(text: str, tool: str) -> float:
    return similarity(encode(text), vector(PROFILES[tool].keywords))


def activate(text: str) -> list[str]:
    """The tools that the text is near enough to, the nearest first."""
    similarities = {
        tool.name: near(text, tool.name)
        for tool in PROFILES.values()
        if tool.keywords and tool.name not in ADAPTIVE
    }
    names = sorted(similarities, key=lambda name: -similarities[name])
    return [name for name in names if similarities[name] > max(PROFILES[name].threshold, CHANCE)]


@pytest.mark.parametrize(("text", "tools"), SENTENCES.items())
def test_a_sentence_activates_what_it_sounds_like(text: str, tools: list[str]) -> None:
    assert activate(text) == tools


@pytest.mark.parametrize(
    ("text", "tool", "value"),
    [
        ("read data from the file report.txt", "file_io", 0.669),
        ("which facts are missing about Mars", "library_search", 0.557),
        ("which facts are missing about Mars", "gap_analysis", 0.542),
        ("Find mammals", "http_fetch", 0.497),
        ("infer which types a class inherits in the ontology", "infer_rules", 0.700),
        ("find unknown gaps in coverage of planets", "gap_analysis", 0.688),
    ],
)
def test_similarities_stay_as_they_were_measured(text: str, tool: str, value: float) -> None:
    assert near(text, tool) == pytest.approx(value, abs=0.0006)


@pytest.mark.parametrize("tool", [tool for tool in PROFILES.values() if tool.keywords])
def test_a_profile_has_17_to_25_different_words(tool: ToolProfile) -> None:
    assert 17 <= len(set(tool.keywords)) <= 25
    assert len(tool.keywords) == len(set(tool.keywords))
    assert content_words(" ".join(tool.keywords)), "no word of it is dropped from goals"
    assert len(content_words(" ".join(tool.keywords))) == len(tool.keywords)


@pytest.mark.parametrize(
    ("name", "threshold", "multiplier", "danger"),
    [
        ("library_search", 0.50, 0.80, "Safe"),
        ("content_ingest", 0.50, 0.75, "Cautious"),
        ("file_io", 0.55, 0.75, "Cautious"),
        ("http_fetch", 0.55, 0.75, "Cautious"),
        ("shell_exec", 0.55, 0.75, "Danger"),
        ("user_interact", 0.55, 0.75, "Safe"),
    ],
)
def test_thresholds_multipliers_and_danger_are_the_seeds(
    name: str, threshold: float, multiplier: float, danger: str
) -> None:
    tool = PROFILES[name]

    assert (tool.threshold, tool.multiplier, tool.danger) == (threshold, multiplier, danger)


def test_there_are_20_roots_of_four_to_six_synonyms() -> None:
    assert len(SYNONYMS) == 20
    assert {len(others) for others in SYNONYMS.values()} <= {4, 5, 6}
    assert {"said", "say", "says"} <= set(SYNONYMS["quote"])


def table(monkeypatch: pytest.MonkeyPatch) -> None:
    roots = {"cat": ("kitten", "feline"), "pet": ("kitten", "dog"), "wolf": ("dog", "howl")}
    monkeypatch.setattr(tool_profiles, "SYNONYMS", roots)


def test_a_root_brings_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    table(monkeypatch)

    assert expand(("Cats",)) == {"cat": WORD, "kitten": SYNONYM, "feline": SYNONYM}


def test_a_word_under_two_roots_brings_both_and_what_they_bring_brings_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table(monkeypatch)

    assert expand(("kitten", "stone")) == {
        "kitten": WORD,
        "stone": WORD,
        **dict.fromkeys(["cat", "dog", "feline", "pet"], SYNONYM),
    }


def test_a_synonym_weighs_half_a_word() -> None:
    assert SYNONYM / WORD == 0.5
    assert near("recall", "consolidate") < near("memory", "consolidate")
