"""Calls that are handed over to the queue of their tool, by workers that disagree about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from pydantic import BaseModel

from boyd import Agent, Plugin, tool
from boyd.models.investigation import (
    Investigation,
    InvestigationRequest,
    Result,
    Started,
    ToolObservation,
)
from boyd.runtime.investigations.move import MAX_CALL_HANDOVERS
from boyd.testing import TESTER, Lab, ScriptedModel
from boyd.testing.model_server import Step, call, say

#: More messages than any of these investigations takes.
ENOUGH = 60


class Word(BaseModel):
    """Params of the tool."""

    word: str = ""


class Before(Plugin):
    """The plugin as it was: its tool belongs to the workers of `old`."""

    id = "logs"

    @tool(queue="old")
    def look(self, params: Word) -> str:
        """Look at something."""
        return f"saw {params.word}"


class After(Plugin):
    """The plugin as it is to be: its tool belongs to the workers of `new`."""

    id = "logs"

    @tool(queue="new")
    def look(self, params: Word) -> str:
        """Look at something."""
        return f"saw {params.word}"


class Fleet:
    """Two workers on one Redis, each with queues and a plugin of its own."""

    def __init__(self, model: ScriptedModel, plugins: dict[str, type[Plugin]]) -> None:
        """Let a worker of each queue in *plugins* have that plugin; `old` thinks, too."""
        llm = {"base_url": f"{model.url}/v1", "model": "scripted"}
        client = None
        self.by_queue: dict[str, Lab] = {}
        for queue, plugin_class in plugins.items():
            agent = Agent("d", plugins=[plugin_class()], llm=llm)
            lab = Lab(agent, client=client, queues=["old", "new"])
            client = lab.client
            self.by_queue[queue] = lab
        self.first = self.by_queue["old"]
        self.messages = 0

    def ask(self) -> Investigation:
        """Ask, and carry each message to the worker of its queue until none is left."""
        request = InvestigationRequest(question="Why?")
        id = self.first.launcher.ask(request, TESTER, self.first.engine.retention)
        name = f"investigation:{id}"
        while any(lab.dispatcher.hints for lab in self.by_queue.values()):
            self.messages += 1
            assert self.messages < ENOUGH, "it is handed over for ever"
            hint = next(
                lab.dispatcher.hints for lab in self.by_queue.values() if lab.dispatcher.hints
            )
            queue = self.first.client.hget(f"boyd:{{d}}:{name}", "queue")
            taker = self.by_queue.get(queue, self.first)
            taker.dispatcher.hints.appendleft(hint.popleft())
            taker.step()
        investigation = self.first.store.investigations.get(id)
        assert investigation is not None
        return investigation

    def results(self, id: str) -> list[ToolObservation]:
        """The result of each call."""
        log = self.first.store.investigations.log(id)
        return [record.entry.observation for record in log if isinstance(record.entry, Result)]

    def count_starts(self, id: str) -> int:
        """Count the started calls."""
        log = self.first.store.investigations.log(id)
        return sum(isinstance(record.entry, Started) for record in log)


@contextmanager
def fleet(script: Sequence[Step], **plugins: type[Plugin]) -> Iterator[Fleet]:
    """Workers of the queues that *plugins* name, with the plugin of each."""
    with ScriptedModel(script) as model:
        yield Fleet(model, plugins)


def test_a_call_whose_queue_two_workers_disagree_about_ends_with_one_result() -> None:
    # The worker of `old` sends it to `new`, and the one of `new` back to `old`.
    script = [call("look", {"word": "disk"}), say("I could not look.")]
    with fleet(script, old=After, new=Before) as workers:
        investigation = workers.ask()

        [result] = workers.results(investigation.id)
        assert (investigation.ending, investigation.text) == ("final_answer", "I could not look.")
        assert (result.status, workers.count_starts(investigation.id)) == ("failed", 0)
        assert "the workers disagree about the queue of the tool 'look'" in result.output
        assert investigation.counters.errors == 1


def test_every_call_has_its_own_limit_of_handovers() -> None:
    twice = [call("look", {"word": word}) for word in ("disk", "net")]
    with fleet([*twice, say("I could not look.")], old=After, new=Before) as workers:
        investigation = workers.ask()

        assert [result.status for result in workers.results(investigation.id)] == [
            "failed",
            "failed",
        ]
        assert workers.messages > 2 * MAX_CALL_HANDOVERS


@pytest.mark.parametrize("plugin", [Before, After])
def test_a_call_that_is_handed_over_once_is_made(plugin: type[Plugin]) -> None:
    script = [call("look", {"word": "disk"}), say("The disk is full.")]
    with fleet(script, old=plugin, new=plugin) as workers:
        investigation = workers.ask()

        [result] = workers.results(investigation.id)
        assert (investigation.ending, result.output) == ("final_answer", "saw disk")
        assert workers.count_starts(investigation.id) == 1
