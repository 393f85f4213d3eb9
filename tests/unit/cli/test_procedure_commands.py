"""`boyd procedures`: what is running, where it stands, and the answers to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boyd import Procedure, ProcedureStep
from boyd.models import Actor, CallRequest
from boyd.plugin import Action
from boyd.store import Store
from boyd.testing import Lab
from cli_kit import Cli, lab_of, new_key, serving
from kit import choice, chooses, overdue

pytestmark = pytest.mark.real


@pytest.fixture
def lab(store: Store) -> Lab:
    """An agent with a procedure that asks a person."""
    steps = [ProcedureStep(id="drain", action="p:drain"), ProcedureStep(id="ok", ask="Go on?")]
    drain = Action(name="drain", execute=lambda: "drained", rollback=lambda: "back")
    renews = chooses(choice(action="p:renew"))
    return lab_of(store, Procedure(name="renew", steps=steps), drain, renews)


@pytest.fixture
def cli(redis_url: str, lab: Lab, tmp_path: Path) -> Iterator[Cli]:
    """The commands of somebody who may do everything."""
    key = new_key(redis_url, "ann", "admin", person=True)
    with serving(redis_url) as api:
        yield Cli(tmp_path, BOYD_API_KEY=key, BOYD_URL=api.url)


def go_on(lab: Lab) -> None:
    """Let workers do what there is to do."""
    for _ in range(6):
        for name in lab.client.zrange("boyd:{test}:due", 0, -1):
            if name.startswith(("procedure:", "call:")):
                overdue(lab, name)


def test_a_procedure_is_listed_shown_and_cancelled(cli: Cli, lab: Lab) -> None:
    assert "No procedure has been started." in cli("procedures", "list")
    request = CallRequest(kind="execute", action="p:renew", actor=Actor(principal="ann"))
    call_id = lab.launcher.call(request, None)
    go_on(lab)

    assert "step 2 of 2 (ok) waits for approval" in cli("procedures", "list")
    output = cli("procedures", "show", f"call:{call_id[:8]}")
    assert "asks a person" in output
    assert "p:drain" in output
    assert "step 2 of 2 (ok)" in cli("actions", "executions")
    refused = cli("procedures", "resume", f"call:{call_id}", status=5)
    assert "waits for approval" in refused
    cancelled = cli("procedures", "cancel", f"call:{call_id}", "--reason", "wrong")
    assert cancelled == f"procedure call:{call_id[:8]}: cancelled\n"
    go_on(lab)
    assert cli.json("procedures", "show", f"call:{call_id}")["state"] == "cancelled"
    assert "no procedure 'loop:9'" in cli("procedures", "show", "loop:9", status=4)


def test_an_iteration_shows_where_the_procedure_stands_that_it_started(cli: Cli, lab: Lab) -> None:
    lab.run()
    go_on(lab)

    assert re.search(r"procedure +step 2 of 2 \(ok\) waits for approval", cli("history", "1"))


def test_the_progress_over_many_targets_is_shown(
    store: Store, redis_url: str, tmp_path: Path
) -> None:
    def patch(params: dict[str, Any]) -> None:
        if params["host"] == "web-2":
            raise OSError("no space left")

    steps = [
        ProcedureStep(
            id="patch",
            action="p:patch",
            params={"host": "${item}"},
            for_each=["web-1", "web-2", "web-3", "web-4"],
            at_once=1,
        )
    ]
    lab = lab_of(store, Procedure(name="all", steps=steps), Action(name="patch", execute=patch))
    lab.launcher.call(
        CallRequest(kind="execute", action="p:all", actor=Actor(principal="ann")), None
    )
    for _ in range(8):
        for name in lab.client.zrange("boyd:{test}:due", 0, -1):
            if name.startswith(("procedure:", "call:", "target:")):
                overdue(lab, name)
    key = new_key(redis_url, "ann", "admin", person=True)
    with serving(redis_url) as api:
        cli = Cli(tmp_path, BOYD_API_KEY=key, BOYD_URL=api.url)
        [record] = lab.store.procedures.all()
        output = cli("procedures", "show", record.id, "--wait", status=1)

    assert "patch ━━━━━━━━━━·········· 2 of 4, 1 failed" in output
    assert "OSError: no space left" in output
