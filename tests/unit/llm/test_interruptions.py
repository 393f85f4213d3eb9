"""Investigations that are cancelled, lose their worker, or get odd output."""

from __future__ import annotations

import json
import threading
from datetime import datetime, timedelta
from typing import Any

import pytest

from boyd import Agent, Plugin, action, tool
from boyd.models import Fence, RunRequest
from boyd.models.investigation import (
    Delta,
    Discarded,
    Ended,
    InvestigationRequest,
    Result,
    Started,
    Usage,
)
from boyd.runtime.jobs.job_runner import Done, JobFailure
from boyd.store import LogChange, StuckJob
from boyd.testing import TESTER, Lab
from boyd.testing.model_server import Received, Reply, call, hang, say, silence
from model_kit import BOB, SECRET, Scene, Tools, Word, scene

#: Long enough for a piece to be shown before all of it has come.
LONG = "It was the network. " * 200


def begin_question(here: Scene) -> str:
    """A question that nobody has begun to answer yet."""
    request = InvestigationRequest(question="Why?")
    here.id = here.lab.launcher.ask(request, TESTER, here.lab.engine.retention)
    return here.id


def cancel_while_it_speaks(here: Scene) -> None:
    """Ask, and cancel it as soon as a piece of the answer was shown."""
    id = begin_question(here)

    def cancel() -> None:
        while not here.entries(Delta):
            pass
        here.lab.store.investigations.cancel(id, BOB)

    canceller = threading.Thread(target=cancel)
    canceller.start()
    here.settle()
    canceller.join()


def test_the_streamed_text_of_a_cancelled_turn_is_discarded() -> None:
    with scene(silence(150, say(LONG))) as here:
        cancel_while_it_speaks(here)

        kinds = [type(entry) for entry in here.log]
        assert (here.found.ending, kinds[-2:]) == ("cancelled", [Discarded, Ended])
        assert [entry.why for entry in here.entries(Discarded)] == ["cancelled by bob"]


def test_the_next_question_does_not_blame_a_worker_for_a_turn_that_was_cancelled() -> None:
    with scene(silence(150, say(LONG)), say("It was the disk.")) as here:
        cancel_while_it_speaks(here)
        here.lab.launcher.go_on(here.id, "And now?", TESTER)
        investigation = here.settle()

        assert investigation.text == "It was the disk."
        assert len(here.entries(Discarded)) == 1


def test_text_streamed_by_a_lost_worker_is_discarded_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with scene(say("never"), limits={"max_seconds": 60}) as here:
        begin_question(here)
        name = f"investigation:{here.id}"
        here.lab.store.jobs.enter(name, 1, "lost/1")
        piece = Delta(step=1, channel="text", text="The disk is fi")
        here.lab.store.investigations.write(
            here.id, Fence(name, 1, "lost/1"), None, LogChange([piece])
        )
        clock = here.lab.engine.store.clock
        late = clock.now() + timedelta(seconds=61)
        monkeypatch.setattr(clock, "now", lambda: late)
        here.lab.store.jobs.put_back(Fence(name, 1, "lost/1"), 0)
        here.lab.dispatcher.hints.append(("job", name, 2))
        here.settle()

        assert here.found.ending == "deadline"
        assert [type(entry) for entry in here.log][-2:] == [Discarded, Ended]


def test_a_turn_that_is_late_ends_it_whatever_the_clock_of_redis_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slow(_: Received) -> Reply:
        clock = here.lab.engine.store.clock
        real = clock.now

        def behind() -> datetime:
            return real() - timedelta(seconds=20)

        monkeypatch.setattr(clock, "now", behind)
        return hang(30, say("late"))

    with scene(slow, limits={"max_seconds": 0.3}) as here:
        assert here.ask().ending == "deadline"


class Odd(Tools):
    """Tools that say what no file of text can hold."""

    @tool()
    def names(self, params: Word) -> str:
        """List names of files, one of which is in no encoding."""
        return b"caf\xe9.log".decode("utf-8", "surrogateescape")

    @tool()
    def opened(self, params: Word) -> str:
        """Fail to open one."""
        raise ValueError(b"no caf\xe9.log".decode("utf-8", "surrogateescape"))


@pytest.mark.parametrize(("name", "status"), [("names", "succeeded"), ("opened", "failed")])
def test_a_tool_that_says_half_a_character_has_its_result(name: str, status: str) -> None:
    with scene(call(name, {}), say("I see."), plugin=Odd()) as here:
        investigation = here.ask()

        assert (investigation.ending, here.results) == ("final_answer", [(name, status)])
        assert "caf\ufffd.log" in here.entries(Result)[0].observation.output


class Once(Plugin):
    """A tool that must not be called twice, one that may be, and an action."""

    id = "once"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.ran: list[str] = []

    @tool()
    def take(self, params: Word) -> str:
        """Take a ticket."""
        self.ran.append("take")
        return "taken"

    @tool(idempotent=True)
    def read(self, params: Word) -> str:
        """Read the counter."""
        self.ran.append("read")
        return "7"

    @action(tool=True)
    def reset(self, params: Word) -> str:
        """Reset the counter."""
        self.ran.append("reset")
        return "0"


@pytest.mark.parametrize(
    ("name", "status", "ran"),
    [("take", "interrupted", []), ("reset", "interrupted", []), ("read", "succeeded", ["read"])],
)
def test_a_call_that_redis_may_have_forgotten_is_repeated_only_if_it_reads(
    name: str, status: str, ran: list[str]
) -> None:
    with scene(call(name, {}), say("I see."), plugin=Once()) as here:
        id = begin_question(here)
        here.lab.step()  # the model has asked for the call, and nothing was started
        here.lab.client.hset(f"boyd:{{detective}}:investigation:{id}", "server", "before")
        investigation = here.settle()

        assert (investigation.ending, here.results) == ("final_answer", [(name, status)])
        assert here.plugin.ran == ran
        assert len(here.entries(Started)) == 1


def test_a_call_that_was_lost_where_its_tool_is_gets_its_result_where_it_is_not() -> None:
    with scene(call("take", {}), say("I see."), plugin=Once()) as here:
        id = begin_question(here)
        here.lab.step()
        name = f"investigation:{id}"
        job = here.lab.store.jobs.enter(name, 2, "lost/1")
        assert job is not None
        change = LogChange([Started(call_id="call00001")], step="starts")
        version = int(job["version"])
        here.lab.store.investigations.write(id, Fence(name, 2, "lost/1"), version, change)
        here.lab.store.jobs.put_back(Fence(name, 2, "lost/1"), 0)
        llm = here.lab.agent.settings.llm
        other = Lab(Agent("detective", plugins=[Tools()], llm=llm), client=here.lab.client)
        other.dispatcher.hints.append(("job", name, 3))
        other.deliver()

        assert here.results == [("take", "interrupted")]
        assert (here.found.ending, here.found.text) == ("final_answer", "I see.")


def test_the_counters_of_an_end_are_those_of_the_investigation() -> None:
    form = {"type": "object", "properties": {"cause": {"type": "string"}}}
    with scene(call("look", {"word": "a"}), call("answer", {"cause": "disk"})) as here:
        investigation = here.ask(answer=form)

        assert here.entries(Ended)[0].counters == investigation.counters
        assert investigation.counters.tool_calls == 2
        assert investigation.counters.usage == Usage(input_tokens=200, output_tokens=40)


def unreadable(here: Scene) -> None:
    """Let a later release have written what this one cannot read."""
    entry = json.dumps({"kind": "later"})
    here.lab.client.xadd(f"boyd:{{detective}}:log:{here.id}", {"entry": entry})


def test_a_run_ends_with_an_investigation_that_is_given_up_and_cannot_be_read() -> None:
    with scene(say("never")) as here:
        run = RunRequest(title="Why", description="is it so?", kind="investigation")
        request = InvestigationRequest(question="Why is it so?")
        here.id = here.lab.launcher.ask(request, TESTER, here.lab.engine.retention, run=run)
        unreadable(here)
        done = give_up(here)

        assert [(id, status) for id, status, _ in done.runs] == [(here.id, "failed")]
        assert done.fields["ending"] == "error"


def give_up(here: Scene) -> Done:
    """The outcome of the job of an investigation whose workers were all lost."""
    job = here.lab.jobs._handlers["investigation"]
    outcome = job.give_up(here.id, StuckJob(2, "think", "w1/1", give_up=True))
    assert isinstance(outcome, Done)
    return outcome


def test_the_error_of_a_broken_log_contains_no_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEST_API_KEY", SECRET)
    with scene(say("never"), api_key_env="TEST_API_KEY") as here:
        begin_question(here)
        job = here.lab.jobs._handlers["investigation"]
        failure = JobFailure(f"the entry {SECRET} cannot be read", 1, Fence(here.id, 1, "w"))
        done = job.handle_error(here.id, {"source": "api"}, failure)

        assert isinstance(done, Done)
        assert SECRET not in str(done.fields)
        assert "cannot be read" in done.fields["text"]
