"""Names and sentences that do not explain themselves become fewer, and never more."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

import names
from names import Ceiling, Module, Offender, ceilings, parse


def texts(count: Callable[[Module], Iterator[tuple[int, str]]], code: str) -> list[str]:
    """The offenders in a snippet of Python."""
    return [text for _, text in count(parse(dedent(code)))]


def lines(number: int) -> list[Offender]:
    """So many offenders."""
    return [Offender(names.ROOT / "shared" / "a.py", line, "def lost") for line in range(number)]


@pytest.mark.parametrize("ceiling", ceilings(), ids=lambda row: f"{row.kind}-{row.place}")
def test_counts_stay_just_below_their_ceilings(ceiling: Ceiling) -> None:
    assert ceiling.problem(ceiling.offenders) == ""


def test_a_count_above_its_ceiling_is_refused_with_places() -> None:
    problem = Ceiling("participles", "sources", 2, 0).problem(lines(3))

    assert "3 participles in the sources, 2 are allowed" in problem
    assert "shared/a.py:2: def lost" in problem
    assert "python tests/names.py participles shared worker api" in problem


def test_a_ceiling_has_to_follow_a_count_that_fell_by_more_than_a_twentieth() -> None:
    ceiling = Ceiling("participles", "sources", 100, 60)

    assert ceiling.problem(lines(95)) == ""
    assert "lower the ceiling to 94" in ceiling.problem(lines(94))
    assert "lower the ceiling to 0" in Ceiling("tests", "tests", 1, 0).problem([])


def test_lowering_changes_one_number_of_the_table() -> None:
    table = "locals = { sources = 20, tests = 7, target = 5 }\ntests = { tests = 9, target = 0 }\n"
    ceiling = Ceiling("tests", "tests", 9, 0)

    assert names.with_ceiling(table, ceiling, 3) == table.replace("9", "3")
    assert "tests = 6, target = 5" in names.with_ceiling(table, Ceiling("locals", "tests", 7, 5), 6)


@pytest.mark.parametrize("name", ["lost", "_told", "ended_runs", "written", "unknown", "reopened"])
def test_a_participle_is_no_name_of_a_function(name: str) -> None:
    assert names.is_participle(name)


@pytest.mark.parametrize(
    "name", ["feed", "open_page", "_reopen", "is_ended", "with_told", "need", "tokens", "__len__"]
)
def test_verbs_and_nouns_are_names_of_functions(name: str) -> None:
    assert not names.is_participle(name)


def test_methods_properties_and_nested_functions_count() -> None:
    code = """
        class Run:
            @property
            def ended(self): ...
            async def _kept(self):
                if self:
                    def seen(): ...
            def end(self): ...
    """

    assert texts(names.participles, code) == ["def ended", "def _kept", "def seen"]


def test_a_vague_name_counts_once_for_each_function_that_binds_it() -> None:
    code = """
        def find(one, *, why=None):
            found = [known for known in one]
            found = found or None
            def visit(said):
                return found
            with open(said) as told, lock:
                return (name := told)
    """

    assert sorted(texts(names.vague_locals, code)) == [
        "found in find",
        "known in find",
        "one in find",
        "said in visit",
        "told in find",
        "why in find",
    ]


@pytest.mark.parametrize(
    "code",
    [
        "def f(now: Execution): ...",
        "def f(now: str | None): ...",
        "def f(): now = {'time': 1}",
        "def f(item): now = item",
        "def f(done): step, now = 1, done.step",
    ],
)
def test_now_is_vague_for_anything_but_a_time(code: str) -> None:
    assert texts(names.vague_locals, code) == ["now in f"]


@pytest.mark.parametrize(
    "code",
    [
        "def f(now): ...",
        "def f(now: datetime | None): ...",
        "def f(now: Callable[[], datetime]): ...",
        "def f(clock): now = clock.now()",
        "def f(): now, slot = time.monotonic(), 1",
        "def f(pipe): (_, now), *rows = pipe.execute()",
    ],
)
def test_now_is_the_name_of_a_time(code: str) -> None:
    assert texts(names.vague_locals, code) == []


@pytest.mark.parametrize(
    "text",
    [
        "What it is.",
        "Tell whether it is due.",
        "The reason why it failed.",
        "The limit; None: there is none.",
        "Hold it, or not any more.",
        "Whoever comes late.",
        "Say what a job is for whom.",
        "Plain.\n\n    Tell whoever asks.",
    ],
)
def test_a_docstring_poses_no_riddle(text: str) -> None:
    assert len(texts(names.docstrings, f'def f():\n    """{text}"""')) == 1


def test_a_plain_docstring_is_fine_and_a_riddle_is_shown_with_its_line() -> None:
    code = (
        '"""Plain.\n\nWhatever this is.\n"""\nclass A:\n    """Fine.\n\n    Whoever reads.\n    """'
    )

    assert list(names.docstrings(parse(code))) == [(8, "Whoever reads.")]


@pytest.mark.parametrize(
    "name", ["test_what_is_begun", "test_who_asks_waits", "test_errors_are_told", "test_a_key_anew"]
)
def test_a_test_is_named_by_a_statement(name: str) -> None:
    assert texts(names.test_names, f"def {name}(): ...") == [name]


def test_statements_name_tests() -> None:
    code = "def test_whales_are_foretold(): ...\ndef test_a_vetoed_decision_is_a_no_op(): ..."

    assert texts(names.test_names, code) == []


def test_long_lists_of_parameters_and_fields_count() -> None:
    code = """
        class Many:
            def few(self, a, b, c, /, d, e, *rest, f, **more): ...
            def many(self, a, b, c, /, d, e, *, f, g): ...
    """

    assert texts(names.parameters, code) == ["def many: 7 parameters"]
    declared = "\n".join(f"    f{number}: int" for number in range(15))
    assert texts(names.fields, f"class C:\n    kind: ClassVar[str]\n{declared}") == []
    assert texts(names.fields, f"class C:\n{declared}\n    last: int") == ["class C: 16 fields"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("-- Expire the items.\nreturn 1", None),
        ("-- @include keys\n-- Uses due\n-- wake(id): wake a job.\n", None),
        ("-- Due jobs are taken.\n", 1),
        ("-- @include keys\n-- is_open(job): whether a job waits.\n", 2),
    ],
)
def test_the_header_of_a_script_begins_with_a_verb(text: str, line: int | None) -> None:
    assert [number for number, _ in names.lua_headers(text)] == ([] if line is None else [line])


def test_comments_of_lua_are_in_plain_words() -> None:
    script = "-- Whoever comes.\nlocal a = 'any more -- anew'\nlocal b = 1 -- taken for a job\n"

    assert [number for number, _ in names.lua_comments(script)] == [1, 3]


def test_complexity_is_counted_whatever_a_comment_allows(tmp_path: Path) -> None:
    branches = "\n".join(f"    if a == {number}: print(a)" for number in range(12))
    (tmp_path / "simple.py").write_text("def simple(a):\n    return a\n")
    (tmp_path / "complex.py").write_text(f"def complex(a): # noqa: C901\n{branches}\n")

    (offender,) = names.offenders("complexity", [tmp_path])

    assert (offender.path, offender.line) == (tmp_path / "complex.py", 1)


def test_offenders_in_the_file_that_changed_last_come_first(tmp_path: Path) -> None:
    for name, changed in (("a.py", 2), ("b.py", 3), ("c.py", 1)):
        (tmp_path / name).write_text("def lost(): ...\n")
        os.utime(tmp_path / name, (changed, changed))

    assert [offender.path.name for offender in names.offenders("participles", [tmp_path])] == [
        "b.py",
        "a.py",
        "c.py",
    ]
