"""`boyd approvals` as somebody uses it who has to decide."""

from __future__ import annotations

import json
import re
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from api_kit import InlineDispatcher
from boyd.models import ActionResult, ApprovalItem, Autonomy, CallRequest, Decision, utc_now
from boyd.plugin import Strategy
from boyd.store import Store
from boyd_cli.commands import approval_commands
from cli_kit import AGO, Cli, beside, lab_of, new_key, read_until, serving
from harness import wait_until
from kit import Recorder, person

pytestmark = pytest.mark.real

GATED = Autonomy(mode="approval-required")


class Desk:
    """An agent whose actions wait, and `ann`, who may approve them."""

    def __init__(self, redis_url: str, store: Store, folder: Path, **required: Any) -> None:
        self._redis_url = redis_url
        self.recorder = Recorder("all tidy")
        self.room = "attic"
        self.moves = 0
        self.lab = lab_of(
            store,
            Strategy(name="chooses", decide=self.decide),
            self.recorder.action(
                autonomy=GATED,
                risk="high",
                rollback=lambda: "all as before",
                dry_run=lambda: f"would move {self.moves} things",
            ),
            approvals={"required": required},
        )
        self.dispatcher = InlineDispatcher(self.lab)
        self.cli = Cli(folder, BOYD_API_KEY=self.key("ann"))

    def decide(self) -> Decision:
        """Tidy the room."""
        return Decision(
            action="p:do", params={"room": self.room}, rationale="it is a mess", confidence=0.75
        )

    def key(self, principal: str) -> str:
        """A key of a person."""
        return new_key(self._redis_url, principal, "read", "approvals", person=True)

    def undo(self) -> tuple[ApprovalItem, str]:
        """Ask to undo what was tidied; that item, and the execution that it would undo."""
        done = self.propose()
        self.lab.resolver.answer(done.id, "approved", person("bob"))
        self.lab.deliver()
        execution = f"approval:{done.id}"
        request = CallRequest(
            kind="rollback", action="p:do", undoes=execution, actor=person("carol")
        )
        self.lab.launcher.call(request, None)
        self.lab.deliver()
        [item] = self.pending
        return item, execution

    def old_preview(self) -> ApprovalItem:
        """An item that was proposed, with its preview, 19 minutes ago."""
        item = self.propose()
        key = f"{self.lab.store._keys.prefix}approval:{item.id}"
        then = int((utc_now() - timedelta(minutes=19)).timestamp() * 1000)
        self.lab.client.hset(key, mapping={"createdAt": then, "previewAt": then})
        return item

    def propose(self, room: str = "attic") -> ApprovalItem:
        """Let an iteration propose to tidy a room."""
        self.room = room
        self.lab.run()
        [item] = [i for i in self.pending if i.params == {"room": room}]
        return item

    @property
    def pending(self) -> list[ApprovalItem]:
        """The pending items."""
        return self.lab.store.approvals.page(50).pending

    def now(self, item: ApprovalItem) -> ApprovalItem:
        """The item as it is now."""
        approval = self.lab.store.approvals.get(item.id)
        assert approval is not None
        return approval


@pytest.fixture
def desk(redis_url: str, store: Store, tmp_path: Path) -> Iterator[Desk]:
    """A desk on which nothing lies."""
    with at(Desk(redis_url, store, tmp_path), redis_url) as at_desk:
        yield at_desk


@pytest.fixture
def strict(redis_url: str, store: Store, tmp_path: Path) -> Iterator[Desk]:
    """A desk where it takes two people, and each has to say why."""
    required = {"min_approvals": 2, "require_note": True}
    with at(Desk(redis_url, store, tmp_path, **required), redis_url) as at_desk:
        yield at_desk


@contextmanager
def at(desk: Desk, redis_url: str) -> Iterator[Desk]:
    """A desk with an API before it."""
    with serving(redis_url, dispatcher=desk.dispatcher) as api:
        desk.cli.environment["BOYD_URL"] = api.url
        yield desk


# Looking


def test_the_list_says_all_that_is_needed_to_decide_what_to_look_at(desk: Desk) -> None:
    item = desk.propose()
    desk.propose()
    header, line = desk.cli("approvals", "list").splitlines()
    columns = ["ID", "ACTION", "RISK", "WHY", "ASKED BY", "SEEN", "VOTES", "TIME LEFT"]
    assert re.split(r"  +", header) == columns
    cells = re.split(r"  +", line)
    assert cells[:-1] == [item.id[:8], "p:do", "high", "it is a mess", "the agent", "2x", "0/1"]
    assert cells[-1] == "59 min"


def test_an_undo_is_named_as_one_in_the_list(desk: Desk) -> None:
    desk.undo()
    desk.propose("cellar")
    lines = desk.cli("approvals", "list").splitlines()[1:]

    assert sorted(re.split(r"  +", line)[1] for line in lines) == ["p:do", "undo of p:do"]


def test_an_undo_is_shown_with_what_it_undoes(desk: Desk) -> None:
    item, execution = desk.undo()
    output = desk.cli("approvals", "show", item.id[:8])

    assert output.startswith(f"undo of p:do ({execution[:17]}): waits\n")
    assert re.search(f"^  undoes +{execution}$", output, re.MULTILINE)
    assert f'  output of the execution to undo ({execution})\n    "all tidy"' in output


def test_approving_a_rollback_with_yes_says_that_it_is_one(desk: Desk) -> None:
    item, execution = desk.undo()
    output = desk.cli("approvals", "approve", "--yes", item.id[:8])

    title = f"undo of p:do ({execution[:17]})"
    assert output.splitlines()[:2] == [f"{title} is approved", f"{title} ok"]


def test_an_empty_list_says_so(desk: Desk) -> None:
    assert desk.cli("approvals", "list") == "No approvals are pending.\n"
    assert desk.cli.json("approvals", "list") == []


def test_resolved_approvals_are_listed_with_all(desk: Desk) -> None:
    desk.cli("approvals", "deny", "--yes", desk.propose().id, "--reason", "leave it")
    assert desk.cli("approvals", "list") == "No approvals are pending.\n"
    assert "denied by ann" in desk.cli("approvals", "list", "--all")


def test_an_item_is_shown_in_full(strict: Desk) -> None:
    item = strict.propose()
    strict.lab.resolver.answer(item.id, "approved", person("bob"), "fine")
    output = strict.cli("approvals", "show", item.id[:6])
    for name, text in {
        "why": "it is a mess",
        "risk": "high",
        "confidence": "0.75",
        "digest": item.fingerprint,
        "policy": "2 approvals, by anyone, not by the requester, with a note",
    }.items():
        assert re.search(rf"{name} +{re.escape(text)}", output), name
    assert re.search(rf"approved by +bob {AGO}: fine", output)
    assert '"room": "attic"' in output
    assert strict.cli.json("approvals", "show", item.id)["id"] == item.id
    assert "room: attic" in strict.cli("approvals", "show", item.id, "-o", "yaml")


def test_an_item_says_that_it_cannot_be_approved_while_actions_are_frozen(desk: Desk) -> None:
    item = desk.propose()
    desk.lab.whole.freezes.freeze("3 am", "test")
    assert "Actions are frozen: 3 am. It stays pending" in desk.cli(
        "approvals", "show", item.id[:8]
    )


def test_a_resolved_approval_shows_its_outcome(desk: Desk) -> None:
    item = desk.propose()
    desk.cli("approvals", "approve", "--yes", item.id, "--reason", "go")
    output = desk.cli("approvals", "show", item.id)
    assert re.search(r"ended +approved by ann .*, p:do ok", output)
    assert re.search(r"note +go", output)
    assert "p:do ok: all tidy" in output


def test_an_unknown_or_ambiguous_id_is_refused(desk: Desk) -> None:
    assert "no approval 'zzz'" in desk.cli("approvals", "approve", "--yes", "zzz", status=4)
    # One more than there are digits to begin with.
    ids = [desk.propose(f"room {number}").id for number in range(17)]
    [(digit, times)] = Counter(id[0] for id in ids).most_common(1)
    output = desk.cli("approvals", "deny", "--yes", digit, status=1)
    assert f"approval {digit!r} is ambiguous, {times} ids begin so: " in output
    assert sum(id[:12] in output for id in ids) == min(times, 5)
    unknown = "01234567-0123-0123-0123-0123456789ab"
    assert unknown in desk.cli("approvals", "show", unknown, status=4)


@pytest.mark.parametrize("command", ["show", "approve", "deny", "withdraw"])
@pytest.mark.parametrize("empty", ["", " "])
def test_an_empty_id_is_refused_and_nothing_is_answered(
    desk: Desk, command: str, empty: str
) -> None:
    item = desk.propose()
    assert "the id is empty" in desk.cli("approvals", command, empty, status=2)
    assert desk.now(item).status == "pending"


def test_invisible_characters_are_shown_escaped(desk: Desk) -> None:
    item = desk.propose("at\u202etic\x9b2J")
    output = desk.cli("approvals", "show", item.id)
    assert r'"room": "at\u202etic\u009b2J"' in output
    assert desk.cli.json("approvals", "show", item.id)["params"] == item.params


# Answering


def test_approving_executes_and_tells_the_result(desk: Desk) -> None:
    item = desk.propose()
    output = desk.cli("approvals", "approve", "--yes", item.id[:8], "--reason", "checked")
    assert re.fullmatch(r"p:do is approved\np:do ok\n  output  all tidy\n", output)
    now = desk.now(item)
    assert (now.status, now.note, now.acted_by) == ("approved", "checked", "ann")
    assert desk.recorder.calls == [{"room": "attic"}]


def test_the_answer_can_be_read_by_programs(desk: Desk) -> None:
    body = desk.cli.json("approvals", "approve", "--yes", desk.propose().id)
    assert (body["success"], body["approval"]["result"]["output"]) == (True, "all tidy")


def test_an_action_that_fails_fails_the_command(desk: Desk) -> None:
    desk.recorder._error = RuntimeError("the door is locked")
    output = desk.cli("approvals", "approve", "--yes", desk.propose().id, status=1)
    assert "p:do failed: RuntimeError: the door is locked" in output


@pytest.mark.parametrize(("command", "status"), [("deny", "denied"), ("withdraw", "withdrawn")])
def test_denying_and_withdrawing_execute_nothing(desk: Desk, command: str, status: str) -> None:
    item = desk.propose()
    assert (
        desk.cli("approvals", command, "--yes", item.id, "--reason", "no") == f"p:do is {status}\n"
    )
    late = desk.cli("approvals", "approve", "--yes", item.id, status=5)
    message = rf"it is already resolved: {status} by ann {AGO} with the note 'no'"
    assert re.search(message, late)
    assert desk.recorder.calls == []


def test_a_late_answer_names_the_first_one_and_its_outcome(desk: Desk) -> None:
    item = desk.propose()
    desk.cli("approvals", "approve", "--yes", item.id, BOYD_API_KEY=desk.key("bob"))
    late = desk.cli("approvals", "approve", "--yes", item.id, status=5)
    assert re.search(rf"already resolved: approved by bob {AGO}, p:do ok", late)


def test_an_item_that_has_expired_says_so(redis_url: str, store: Store, tmp_path: Path) -> None:
    with at(Desk(redis_url, store, tmp_path), redis_url) as desk:
        item = desk.propose()
        store.client.zadd(f"{desk.lab.store._keys.approvals_pending}", {item.id: 1})
        late = desk.cli("approvals", "approve", "--yes", item.id, status=5)
    assert "it expired" in late
    assert "nothing was executed" in late


def test_several_are_answered_one_by_one(desk: Desk) -> None:
    rooms = ["attic", "cellar", "den"]
    first, two, three = [desk.propose(room) for room in rooms]
    desk.cli("approvals", "deny", "--yes", two.id)
    ids = [item.id for item in (first, two, three)]
    output = desk.cli("approvals", "approve", "--yes", *ids, status=5)
    assert f"{first.id[:8]} p:do ok" in output
    assert f"boyd: {two.id[:8]} it is already resolved: denied by ann" in output
    assert f"{three.id[:8]} p:do ok" in output
    assert desk.recorder.calls == [{"room": "attic"}, {"room": "den"}]


def test_nothing_is_answered_when_one_id_is_mistaken(desk: Desk) -> None:
    item = desk.propose()
    desk.cli("approvals", "deny", "--yes", item.id[:8], "zzz", status=4)
    assert desk.now(item).status == "pending"


def test_a_result_that_takes_longer_is_not_waited_for(desk: Desk) -> None:
    desk.dispatcher.held = True
    first, second = desk.propose(), desk.propose("cellar")
    output = desk.cli("approvals", "approve", "--yes", first.id, "--wait", "0.1", status=124)
    assert "p:do is approved and has not finished: waits for a worker" in output
    at_once = desk.cli("approvals", "approve", "--yes", second.id, "--wait", "0")
    assert at_once == "p:do is approved\n"


def test_it_takes_as_many_people_as_the_policy_says(strict: Desk) -> None:
    item = strict.propose()
    assert "requires a note" in strict.cli("approvals", "approve", "--yes", item.id, status=1)
    first = strict.cli("approvals", "approve", "--yes", item.id, "--reason", "ok")
    assert "p:do has 1 of 2 approvals, and waits for 1 more approval" in first
    again = strict.cli("approvals", "approve", "--yes", item.id, "--reason", "ok", status=5)
    assert "you have already approved it" in again
    bob = strict.key("bob")
    too = ("--yes", "--reason", "me too")
    second = strict.cli("approvals", "approve", item.id, *too, BOYD_API_KEY=bob)
    assert "p:do ok" in second


def test_a_key_without_the_scope_may_look_and_not_answer(desk: Desk, redis_url: str) -> None:
    item = desk.propose()
    reader = new_key(redis_url, "eve", "read")
    assert item.id[:8] in desk.cli("approvals", "list", BOYD_API_KEY=reader)
    output = desk.cli("approvals", "approve", "--yes", item.id, status=3, BOYD_API_KEY=reader)
    assert "lacks the scope 'approvals'" in output
    assert desk.now(item).status == "pending"


# What is approved is what was shown


def test_being_proposed_again_meanwhile_does_not_matter(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = desk.propose()
    monkeypatch.setattr(approval_commands, "_find_all", lambda *_: [item])
    desk.propose()
    assert "p:do ok" in desk.cli("approvals", "approve", "--yes", item.id)


def test_another_proposal_than_was_shown_is_not_approved(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = desk.propose()
    other = item.patched({"params": {"room": "office"}, "version": 0})
    monkeypatch.setattr(approval_commands, "_find_all", lambda *_: [other])
    output = desk.cli("approvals", "approve", "--yes", item.id, status=5)
    assert "it has changed since it was shown" in output
    assert desk.recorder.calls == []


# On a terminal


def test_on_a_terminal_it_is_shown_and_asked_about(desk: Desk) -> None:
    item = desk.propose()
    with desk.cli.terminal("approvals", "approve", item.id[:6]) as terminal:
        text = terminal.says("Approve? [y/N]")
        assert '"room": "attic"' in text
        terminal.type("y\n")
        assert "p:do ok" in terminal.rest()
        assert terminal.process.wait(120) == 0


def test_only_an_explicit_yes_approves(desk: Desk) -> None:
    item = desk.propose()
    with desk.cli.terminal("approvals", "approve", item.id) as terminal:
        terminal.says("Approve? [y/N]")
        terminal.type("\n")
        assert "stays pending" in terminal.rest()
        assert terminal.process.wait(120) == 1
    assert desk.now(item).status == "pending"


def test_an_answer_given_during_the_prompt_is_reported(desk: Desk) -> None:
    item = desk.propose()
    with desk.cli.terminal("approvals", "approve", item.id) as terminal:
        terminal.says("Approve? [y/N]")
        desk.lab.resolver.answer(item.id, "denied", person("bob"), "not today")
        terminal.type("y\n")
        assert "denied by bob" in terminal.rest()
        assert terminal.process.wait(120) == 5


def test_a_spinner_tells_how_far_it_is(desk: Desk) -> None:
    desk.dispatcher.held = True
    item = desk.propose()
    with desk.cli.terminal("approvals", "approve", item.id, "--yes") as terminal:
        terminal.says("p:do waits for a worker")
        desk.lab.deliver()
        assert "p:do ok" in terminal.rest()


def test_the_watched_list_is_redrawn_on_a_change(desk: Desk) -> None:
    with desk.cli.terminal("approvals", "list", "--watch") as terminal:
        terminal.says("No approvals are pending.")
        item = desk.propose()
        terminal.says(item.id[:8])
        terminal.process.send_signal(signal.SIGINT)
        terminal.rest()
        assert terminal.process.wait(120) == 0


def test_watching_into_a_pipe_prints_each_state_of_the_list(desk: Desk) -> None:
    with desk.cli.running("approvals", "list", "--watch", "-o", "json") as watch:
        assert json.loads(read_until(watch.stdout, "[")[0]) == []
        item = desk.propose()
        [entry] = json.loads(read_until(watch.stdout, item.id)[-1])
        assert entry["params"] == {"room": "attic"}


def test_ctrl_c_ends_the_waiting_and_not_the_action(desk: Desk) -> None:
    desk.dispatcher.held = True
    item = desk.propose()
    with desk.cli.terminal("approvals", "approve", item.id, "--yes") as terminal:
        terminal.says("p:do waits for a worker")
        terminal.process.send_signal(signal.SIGINT)
        assert "It continues without this command." in terminal.rest()
        assert terminal.process.wait(120) == 130
    desk.lab.deliver()
    assert desk.now(item).result is not None


def test_a_preview_of_now_is_shown_beside_the_first_one(desk: Desk) -> None:
    desk.moves = 3
    item = desk.old_preview()
    desk.moves = 33
    output = desk.cli("approvals", "show", item.id)

    assert re.search(r"preview \(dry run .+; DIFFERS from the first preview\)\n    ", output)
    assert output.index("would move 33 things") < output.index("first preview (19 min ago)")
    assert output.index("first preview") < output.index("would move 3 things")


def test_a_preview_without_a_live_worker_is_shown_as_outdated(desk: Desk) -> None:
    desk.moves = 3
    item = desk.old_preview()
    desk.lab.whole.fleet.leave("lab@here")
    output = desk.cli("approvals", "show", item.id)

    assert "boyd: the preview is outdated: no live worker consumes queue 'act'" in output
    assert "preview (dry run 19 min ago; OUTDATED: the result may differ now)" in output


def test_approving_on_a_terminal_shows_the_current_preview(desk: Desk) -> None:
    desk.moves = 3
    item = desk.old_preview()
    desk.moves = 33
    with desk.cli.terminal("approvals", "approve", item.id[:6]) as terminal:
        assert "would move 33 things" in terminal.says("Approve? [y/N]")
        desk.moves = 99
        other = desk.lab.store.approvals
        other.refresh(item.id, ActionResult(action="p:do", success=True, duration=1, output="none"))
        terminal.type("y\n")
        terminal.says("It has changed in the meantime")
        terminal.type("n\n")
        assert terminal.process.wait(120) == 1
    assert desk.now(item).status == "pending"


def test_the_result_is_waited_for(desk: Desk) -> None:
    desk.dispatcher.held = True
    item = desk.propose()

    def work() -> None:
        wait_until(lambda: desk.lab.dispatcher.hints)
        desk.lab.deliver()

    with beside(work):
        assert "p:do ok" in desk.cli("approvals", "approve", "--yes", item.id)
