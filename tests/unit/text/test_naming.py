"""Names of executions and jobs: what is written is read again, and never changes."""

from __future__ import annotations

import pytest

from boyd import naming


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (naming.iteration_execution(naming.iteration(12, "1a2b")), "loop:12.1a2b"),
        (naming.approval("a1"), "approval:a1"),
        (naming.call("c1"), "call:c1"),
        (naming.rollback("call:c1"), "rollback:call:c1"),
        (naming.investigation("i1"), "investigation:i1"),
        (naming.tool_call("i1", "call00001"), "investigation:i1:call00001"),
        (naming.callback("r1"), "callback:r1"),
    ],
)
def test_a_name_is_a_kind_a_colon_and_an_id(name: str, text: str) -> None:
    assert name == text
    assert ":".join(naming.parts(name)) == text


def test_the_execution_of_an_iteration_may_be_named_without_its_timeline() -> None:
    assert naming.loop_number("loop:12") == 12
    assert [naming.loop_number(n) for n in ("loop:12.1a2b", "call:12", "loop:", "loop:²")] == [
        None
    ] * 4


def test_a_member_that_is_not_a_job_has_no_id() -> None:
    assert naming.parts("phase") == ("phase", "")


def test_only_what_undoes_an_execution_is_a_rollback() -> None:
    assert naming.is_rollback(naming.rollback(naming.call("c1")))
    assert not naming.is_rollback(naming.call("rollback"))
