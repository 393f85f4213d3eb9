"""Playbooks: read from Markdown with real YAML, matched, and told to a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boyd.errors import ConfigError
from boyd.llm.playbook import (
    Playbook,
    PlaybookPhase,
    Trigger,
    load_folder,
    match,
    parse,
    section,
    to_markdown,
)
from boyd.models import Observation, Severity

HEAD = "name: Disk full\ndescription: What to do\n"


def playbook_text(head: str = HEAD, body: str = "Look first.\n") -> str:
    return f"---\n{head}---\n{body}"


def book(name: str = "b", **fields: Any) -> Playbook:
    trigger = Trigger(**fields.pop("trigger", {}))
    return Playbook(**{"id": name, "name": name, "description": "d", "trigger": trigger, **fields})


def event(source: str = "app", severity: Severity | None = None, **data: Any) -> Observation:
    return Observation(source=source, type="event", severity=severity, data=data)


def test_a_playbook_has_defaults_and_takes_its_id_from_its_file() -> None:
    playbook = parse(playbook_text(), "books/Disk Full!.md")
    assert playbook == Playbook(
        id="disk-full",
        name="Disk full",
        description="What to do",
        phases=["orient", "decide"],
        body="Look first.",
        source="books/Disk Full!.md",
    )
    assert parse(playbook_text(), "!.md").id == "unknown"
    assert parse(playbook_text(HEAD + "id: other\n"), "a.md").id == "other"


@pytest.mark.parametrize("change", [lambda t: "\ufeff" + t, lambda t: t.replace("\n", "\r\n")])
def test_marks_and_line_ends_of_other_systems_are_fine(change: Any) -> None:
    assert parse(change(playbook_text()), "a.md") == parse(playbook_text(), "a.md")


def test_yaml_is_yaml() -> None:
    head = """
name: 404
description: >
  Over two
  lines
trigger:
  severity: error
  keywords:
    - "a, quoted"
    - yes
    - 2026-01-01
  sources: ["host:", 'x']
phases: [observe]
priority: -10
recordedBy: someone
"""
    playbook = parse(playbook_text(head), "a.md")
    assert (playbook.name, playbook.description, playbook.priority) == (
        "404",
        "Over two lines",
        -10,
    )
    assert playbook.trigger.keywords == ["a, quoted", "yes", "2026-01-01"]
    assert playbook.trigger.sources == ["host:", "x"]
    assert playbook.phases == ["observe"]


def test_one_keyword_need_not_be_a_list_and_what_is_left_empty_is_not_set() -> None:
    playbook = parse(playbook_text(HEAD + "trigger:\n  keywords: disk\nid:\nphases:\n"), "a.md")
    assert playbook.trigger.keywords == ["disk"]
    assert playbook.id == "a"
    assert parse(playbook_text(HEAD + "trigger:\n"), "a.md").trigger == Trigger()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no settings", "must start with settings"),
        ("---\nname: x\n", "must start with settings"),
        (playbook_text("- a\n"), "not a mapping"),
        (playbook_text("name: a\n"), "description: Field required"),
        (playbook_text("name: ''\ndescription: b\n"), "name: "),
        (playbook_text(HEAD + "trigger: {severity: bad}\n"), "trigger.severity: "),
        (playbook_text(HEAD + "trigger: {keyword: [a]}\n"), "trigger.keyword: "),
        (playbook_text(HEAD + "trigger: {keywords: [[a]]}\n"), "trigger.keywords.0: "),
        (playbook_text(HEAD + "trigger: {keywords: ['']}\n"), "trigger.keywords.0: "),
        (playbook_text(HEAD + "phases: [dream]\n"), "phases.0: "),
        (playbook_text(HEAD + "phases: []\n"), "phases: "),
        (playbook_text(HEAD + "priority: high\n"), "priority: "),
        (playbook_text(HEAD + "triger: {}\n"), "triger: unknown field; did you mean trigger"),
        (playbook_text(HEAD + "x: [\n"), "line "),
        (playbook_text(HEAD + "x: !!python/object:os.system a\n"), "line 4: "),
        (playbook_text("x: " + "[" * 5000 + "\n"), "nest"),
        (playbook_text("x: \x00\n"), "special characters"),
    ],
)
def test_an_invalid_playbook_is_refused_with_file_and_field(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(text, "books/a.md")
    assert str(raised.value).startswith("books/a.md: ")
    assert expected in str(raised.value)
    assert "\n" not in str(raised.value).split("special characters")[0]


def test_a_folder_gives_what_can_be_read_and_names_the_rest(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text(playbook_text())
    (tmp_path / "a.MD").write_text(playbook_text(HEAD + "id: b\n"))
    (tmp_path / "bad.md").write_text("nothing")
    (tmp_path / "bytes.md").write_bytes(b"\xff")
    (tmp_path / "long.md").write_bytes(b"x" * 300_000)
    (tmp_path / "folder.md").mkdir()
    (tmp_path / ".#b.md").symlink_to("ann@host.4711:1764000000")
    (tmp_path / "._b.md").write_bytes(b"\0\5\x16\7")
    (tmp_path / "notes.txt").write_text("not a playbook")
    playbooks, warnings = load_folder(tmp_path)
    assert [playbook.id for playbook in playbooks] == ["b"]
    unreadable = ("b.md", "bad.md", "bytes.md", "folder.md", "long.md")
    assert len(warnings) == len(unreadable)
    assert all(any(name in warning for warning in warnings) for name in unreadable)


def test_a_folder_that_is_not_there_is_a_warning(tmp_path: Path) -> None:
    playbooks, warnings = load_folder(tmp_path / "none")
    assert playbooks == []
    assert len(warnings) == 1


def fits(trigger: dict[str, Any], *observations: Observation) -> bool:
    return bool(match([book(trigger=trigger)], observations, "orient"))


def test_an_empty_trigger_always_fits() -> None:
    assert fits({})
    assert fits({}, event())


@pytest.mark.parametrize(
    ("severity", "fit"), [(None, False), ("info", False), ("warning", True), ("critical", True)]
)
def test_some_observation_is_at_least_as_severe(severity: Severity | None, fit: bool) -> None:
    assert fits({"severity": "warning"}, event(), event(severity=severity)) == fit
    assert not fits({"severity": "info"})


def test_keywords_are_looked_for_in_source_and_data_in_either_case() -> None:
    assert fits({"keywords": ["nothing", "DISK"]}, event(), event(note=["a Disk is full"]))
    assert fits({"keywords": ["Disk"]}, event("host-DISK"))
    assert fits({"keywords": ["größe"]}, event(text="GRÖSSE"))
    assert fits({"keywords": ['say "x"\\']}, event(text='say "x"\\'))
    assert not fits({"keywords": ["disk"]}, event(text="memory"))


def test_sources_are_matched_at_their_beginning() -> None:
    assert fits({"sources": ["host"]}, event("host-1"))
    assert not fits({"sources": ["host"]}, event("my-host"))


def test_all_conditions_must_be_met_if_by_different_observations() -> None:
    trigger = {"severity": "error", "sources": ["host"]}
    assert fits(trigger, event("host-1"), event("app", "error"))
    assert not fits(trigger, event("host-1"), event("app", "warning"))


def test_the_phase_fits_and_the_highest_priority_is_first() -> None:
    late: list[PlaybookPhase] = ["decide"]
    books = [book("b"), book("c", priority=5), book("a"), book("d", priority=9, phases=late)]
    assert [playbook.id for playbook in match(books, [], "orient")] == ["c", "a", "b"]
    assert [playbook.id for playbook in match(books, [], "decide")] == ["d", "c", "a", "b"]


def test_a_section_keeps_the_order_and_the_limit() -> None:
    books = [book("first", body="x" * 100), book("second", body="y" * 100)]
    whole = section(books, 10_000)
    assert whole.index("first") < whole.index("second")
    for limit in range(320):
        prompt_part = section(books, limit)
        assert len(prompt_part) <= limit
        assert prompt_part == whole or not prompt_part or prompt_part.endswith(("[... cut]", "x"))
    assert section([], 100) == ""


TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), max_size=30)
MAX_SAID = TEXT.map(str.strip).filter(bool)
ODD = st.sampled_from(["null", "~", "yes", "1", "- a", "a: b", "---", "<<", "'", '"', "a\n---\nb"])


@given(
    MAX_SAID | ODD,
    MAX_SAID | ODD,
    st.builds(
        Trigger,
        severity=st.sampled_from([None, "info", "critical"]),
        keywords=st.lists(MAX_SAID | ODD, max_size=3),
        sources=st.lists(MAX_SAID, max_size=2),
    ),
    st.integers(-999, 999),
    TEXT | st.just("a\n---\nb\n\n# c"),
)
def test_playbooks_survive_a_round_trip_through_markdown(
    name: str, description: str, trigger: Trigger, priority: int, body: str
) -> None:
    written = Playbook(
        id=name,
        name=name,
        description=description,
        trigger=trigger,
        priority=priority,
        body=body,
        source="x.md",
    )
    assert parse(to_markdown(written), "x.md") == written


@pytest.mark.parametrize(
    "head",
    [
        "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 99)),
        "m0: &m0 {k: v}\n"
        + "".join(f"m{n}:\n  <<: [*m{n - 1}, *m{n - 1}]\n" for n in range(1, 99)),
        "a: &a [*a]\ntrigger: *a\n",
    ],
)
def test_aliases_are_refused(head: str) -> None:
    with pytest.raises(ConfigError, match=r"a\.md: line \d+: aliases \(\*\) are not allowed"):
        parse(playbook_text(HEAD + head), "a.md")


def test_long_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="the settings have more than 32768 characters"):
        parse(playbook_text(HEAD + "a: " + "[" * 40_000 + "\n"), "a.md")
