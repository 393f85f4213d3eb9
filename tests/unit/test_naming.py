"""Names of executions and orders: what is written is read again, and never changes."""

from __future__ import annotations

import pytest

from boyd import naming


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (naming.loop(12), "loop:12"),
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


def test_what_is_no_name_has_no_id() -> None:
    assert naming.parts("phase") == ("phase", "")


def test_only_what_undoes_an_execution_is_a_rollback() -> None:
    assert naming.is_rollback(naming.rollback(naming.call("c1")))
    assert not naming.is_rollback(naming.call("rollback"))
