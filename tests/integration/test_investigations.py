"""Investigations on real workers that are killed wherever it hurts."""

from __future__ import annotations

import itertools
import random
import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from boyd.models import Actor
from boyd.models.investigation import Investigation, InvestigationRequest, Result, Said
from boyd.store import Retention
from boyd.testing.model_server import Received, ScriptedModel, call, calls, hang, say, status
from harness import Deployment, wait_until

pytestmark = pytest.mark.real

AGENT = "agents.detective:detective"
ASKER = Actor(principal="ann", person=True)
BOB = Actor(principal="bob", person=True)


class Case:
    """A deployment with a model, and one investigation in it."""

    def __init__(self, deployment: Deployment, model: ScriptedModel) -> None:
        self.deployment = deployment
        self.model = model
        self.store = deployment.agent("detective")
        self.id = ""
        deployment.environment["MODEL_URL"] = f"{model.url}/v1"

    def worker(self, name: str, *arguments: str) -> None:
        """Start a worker."""
        self.deployment.worker(name, AGENT, *arguments)

    def ask(self) -> None:
        """Ask something."""
        launcher = self.deployment.launcher("detective")
        self.id = launcher.ask(InvestigationRequest(question="Why?"), ASKER, Retention())

    def ended(self, timeout: float = 40.0) -> Investigation:
        """Wait for the end of the investigation."""
        wait_until(lambda: self.found.status == "ended", timeout)
        return self.found

    @property
    def found(self) -> Investigation:
        """The investigation as stored."""
        investigation = self.store.investigations.get(self.id)
        assert investigation is not None
        return investigation

    @property
    def effects(self) -> list[str]:
        """The effects of the tools."""
        return self.deployment.effects_file.read_text().splitlines()

    def results(self) -> list[tuple[str, str]]:
        """The id and status of each result."""
        entries = [logged.entry for logged in self.store.investigations.log(self.id)]
        return [
            (entry.observation.call_id or "", entry.observation.status)
            for entry in entries
            if isinstance(entry, Result)
        ]

    def calls(self) -> list[str]:
        """The ids of the calls that the model has made."""
        entries = [logged.entry for logged in self.store.investigations.log(self.id)]
        return [
            model_call.id
            for entry in entries
            if isinstance(entry, Said)
            for model_call in entry.calls
        ]

    def hold(self, name: str) -> Path:
        """Have a tool stop in the middle."""
        file = Path(f"{self.deployment.effects_file}.hold.{name}")
        file.touch()
        return file


@pytest.fixture
def case(deployment: Deployment, request: pytest.FixtureRequest) -> Iterator[Case]:
    """A case whose model follows the script that the test names."""
    with ScriptedModel(request.param, forever=True) as model:
        yield Case(deployment, model)


MOVE = [call("move", {"word": "a"}), say("It was a.")]


@pytest.mark.parametrize("case", [[call("look", {"word": "a"}), say("It was a.")]], indirect=True)
def test_each_move_is_a_task_and_workers_may_share_them(case: Case) -> None:
    case.worker("thinker", "-Q", "think")
    case.worker("doer", "-Q", "act,loop")
    case.ask()
    investigation = case.ended()

    assert (investigation.ending, investigation.text) == ("final_answer", "It was a.")
    assert case.effects == ["look a"]


@pytest.mark.parametrize("case", [MOVE], indirect=True)
def test_an_action_whose_worker_is_killed_is_not_executed_again(case: Case) -> None:
    case.worker("first")
    held = case.hold("move")
    case.ask()
    wait_until(lambda: case.effects)
    case.deployment.kill("first")
    held.unlink()
    case.worker("second")
    investigation = case.ended()

    assert investigation.ending == "final_answer"
    assert case.effects == ["move a"]
    assert case.results() == [("call00001", "interrupted")]
    assert "unknown" in case.model.requests[-1].body["messages"][-1]["content"]


@pytest.mark.parametrize("case", [[call("look", {"word": "a"}), say("So.")]], indirect=True)
def test_a_tool_whose_worker_is_killed_is_not_called_again(case: Case) -> None:
    case.worker("first")
    held = case.hold("look")
    case.ask()
    wait_until(lambda: case.effects)
    case.deployment.kill("first")
    held.unlink()
    case.worker("second")
    case.ended()

    assert case.effects == ["look a"]
    assert case.results() == [("call00001", "interrupted")]


@pytest.mark.long
@pytest.mark.parametrize("case", [[call("peek", {"word": "a"}), say("So.")]], indirect=True)
def test_a_tool_that_may_be_called_again_is(case: Case) -> None:
    case.worker("first")
    held = case.hold("peek")
    case.ask()
    wait_until(lambda: case.effects)
    case.deployment.kill("first")
    held.unlink()
    case.worker("second")
    case.ended()

    assert case.effects == ["peek a", "peek a"]
    assert case.results() == [("call00001", "succeeded")]


@pytest.mark.long
@pytest.mark.parametrize("case", [[hang(60, say("Too late.")), say("It was a.")]], indirect=True)
def test_a_turn_whose_worker_is_killed_is_asked_for_again(case: Case) -> None:
    case.worker("first")
    case.ask()
    wait_until(lambda: case.model.requests)
    case.deployment.kill("first")
    case.worker("second")
    investigation = case.ended()

    assert (investigation.ending, investigation.text) == ("final_answer", "It was a.")
    assert case.model.requests[0].raw == case.model.requests[1].raw


@pytest.mark.long
@pytest.mark.parametrize("case", [MOVE], indirect=True)
def test_a_reply_that_was_stored_is_not_asked_for_again(case: Case) -> None:
    case.worker("thinker", "-Q", "think,loop")
    case.worker("doer", "-Q", "act")
    case.deployment.kill("doer", signal.SIGSTOP)
    case.ask()
    wait_until(case.calls)
    case.deployment.kill("thinker")
    case.deployment.kill("doer")
    case.worker("second")
    investigation = case.ended()

    assert investigation.ending == "final_answer"
    assert case.effects == ["move a"]
    assert len(case.model.requests) == 2
    assert case.results() == [("call00001", "succeeded")]


class _Small:
    """A model with little room: it looks at three long things, and takes its time to answer."""

    def __init__(self) -> None:
        self.short: list[bytes] = []

    def __call__(self, request: Received) -> Any:
        if len(request.raw) > 15_000:
            return status(400, message="This model's maximum context length is 4096 tokens.")
        looked = request.raw.count(b"call0")
        if b"to make room" in request.raw:
            self.short.append(request.raw)
            return hang(60 if len(self.short) == 1 else 0, say("It was a."))
        return call("look", {"word": f"{looked} {'x' * 3000}"})


SMALL = _Small()


@pytest.mark.long
@pytest.mark.parametrize("case", [[SMALL]], indirect=True)
def test_a_worker_that_is_killed_after_a_compaction_is_followed_by_one_that_sends_the_same(
    case: Case,
) -> None:
    case.worker("first")
    case.ask()
    wait_until(lambda: SMALL.short)
    case.deployment.kill("first")
    case.worker("second")
    investigation = case.ended()

    assert (investigation.ending, investigation.text) == ("final_answer", "It was a.")
    assert len(SMALL.short) == 2
    assert SMALL.short[0] == SMALL.short[1]


def _many(request: Received) -> Any:
    """Three calls a turn, five times, each another."""
    turns = sum(message["role"] == "assistant" for message in request.body["messages"])
    if turns >= 5:
        return say("That was all.")
    three: list[Any] = [("move", {"word": f"{turns}.{n}"}) for n in range(3)]
    return calls(*three)


def _has_moved(case: Case, had: int) -> bool:
    """Check that it has more results than before, or has ended."""
    return len(case.results()) > had or case.found.ending is not None


@pytest.mark.slow
@pytest.mark.parametrize("case", [[_many]], indirect=True)
@pytest.mark.long
def test_workers_killed_at_random_cost_time_and_nothing_else(case: Case) -> None:
    chance = random.Random(7)
    names = (f"w{n}" for n in itertools.count())
    alive = [next(names) for _ in range(2)]
    for name in alive:
        case.worker(name)
    case.ask()
    for _ in range(6):
        had = len(case.results())
        wait_until(partial(_has_moved, case, had), 40)
        if case.found.ending:
            break
        case.deployment.kill(alive.pop(chance.randrange(2)))
        alive.append(next(names))
        case.worker(alive[-1])
    investigation = case.ended(60)

    assert (investigation.ending, investigation.text) == ("final_answer", "That was all.")
    assert len(case.calls()) == 15
    assert sorted(id for id, _ in case.results()) == sorted(case.calls())
    assert set(Counter(case.effects).values()) == {1}
    statuses = Counter(status for _, status in case.results())
    assert statuses["succeeded"] + statuses["interrupted"] == 15
    assert len(case.effects) >= statuses["succeeded"]


@pytest.mark.parametrize(
    "case", [[call("restart", {"word": "web"}), say("It runs.")]], indirect=True
)
def test_it_waits_without_a_worker_and_goes_on_when_somebody_answers(case: Case) -> None:
    case.worker("first")
    case.ask()
    wait_until(lambda: case.found.status == "waiting")
    case.deployment.kill("first")
    resolver = case.deployment.resolver("detective")
    outcomes = [
        resolver.answer(case.found.approval_id or "", "approved", BOB).outcome for _ in range(3)
    ]
    case.worker("second")
    investigation = case.ended()

    assert outcomes[0] == "approved"
    assert "approved" not in outcomes[1:]
    assert investigation.ending == "final_answer"
    assert case.effects == ["restart web"]
    assert case.results() == [("call00001", "succeeded")]


@pytest.mark.parametrize("case", [[hang(60, say("Too late."))]], indirect=True)
def test_cancelling_interrupts_the_turn_of_the_model_at_once(case: Case) -> None:
    case.worker("first")
    case.ask()
    wait_until(lambda: case.model.requests)
    assert case.store.investigations.cancel(case.id, BOB) == "ok"
    investigation = case.ended(10)

    assert (investigation.ending, investigation.cancelled_by) == ("cancelled", "bob")
    assert investigation.text


@pytest.mark.parametrize("case", [MOVE], indirect=True)
def test_a_worker_that_stops_hands_on_what_it_has_begun(case: Case) -> None:
    case.worker("first")
    held = case.hold("move")
    case.ask()
    wait_until(lambda: case.effects)
    case.deployment.processes["first"].terminate()
    held.unlink()
    case.deployment.processes["first"].wait(120)
    case.worker("second")
    investigation = case.ended()

    assert investigation.ending == "final_answer"
    assert case.effects == ["move a"]
    assert case.results() == [("call00001", "succeeded")]
