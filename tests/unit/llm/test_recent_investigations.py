"""A long investigation is not read and computed anew with each step."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import fakeredis
import pytest

from boyd import Agent
from boyd.llm.conversation import Conversation, ToolCallRecord
from boyd.llm.messages import ToolUse
from boyd.llm.steering import Steering
from boyd.llm.steps import InvestigationSteps
from boyd.llm.toolbox import Toolbox
from boyd.models.investigation import (
    Asked,
    Delta,
    Entry,
    InvestigationRequest,
    Result,
    Said,
    Started,
    ToolCall,
    ToolObservation,
)
from boyd.runtime.investigations.move import MOST, RecentInvestigations
from boyd.settings.model import ModelSettings
from boyd.store import Store
from boyd.testing import Lab
from investigation_kit import Disk

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def result(number: int, output: str) -> Result:
    observation = ToolObservation(
        time=NOW,
        step=number,
        tool="look",
        call_id=f"call{number:05d}",
        status="succeeded",
        total_bytes=len(output),
        output=output,
    )
    return Result(observation=observation)


def turn(number: int) -> list[Entry]:
    """The entries of one turn with a call, which ends with its result."""
    id = f"call{number:05d}"
    called = ToolCall(id=id, name="look", arguments=f'{{"path": "/{number % 7}"}}')
    return [
        Delta(step=number, channel="text", text="Let me"),
        Said(step=number, text="Let me look.", calls=[called], finish="calls"),
        Started(call_id=id),
        result(number, f"disk {number} has {number * 3} free blocks of {number * 5}"),
    ]


class Log:
    """An investigation whose log is written by hand, and what a worker remembers of it."""

    id = "one"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.client: Any = fakeredis.FakeRedis(decode_responses=True)
        self.store = Store(self.client, "w").agent("disks").investigations
        self.host = Lab(Agent("disks", plugins=[Disk()])).agent.host
        self.recent = RecentInvestigations(self.store)
        self.read_entries = 0
        entries = self.store._entries

        def count_entries(*args: Any) -> Any:
            log_entries = entries(*args)
            self.read_entries += len(log_entries)
            return log_entries

        monkeypatch.setattr(self.store, "_entries", count_entries)

    def key(self, id: str = id) -> str:
        return f"boyd:{{disks}}:log:{id}"

    def write(self, *entries: Entry, id: str = id) -> list[str]:
        return [self.client.xadd(self.key(id), {"entry": entry.to_json()}) for entry in entries]

    def steps(self, toolbox: Toolbox) -> InvestigationSteps:
        model = ModelSettings(base_url="https://model.example/v1", model="m")
        request = InvestigationRequest(question="Why?", profile="execution")
        return InvestigationSteps("disks", model, request, toolbox)

    def read(self, id: str = id) -> tuple[Conversation, Steering]:
        """Read as a worker does, and compare with the whole log."""
        conversation, steps = self.recent.read(id, Toolbox(self.host), self.steps)
        whole = Conversation.of(self.store.log(id))
        whole.pieces = [piece for piece in conversation.pieces if piece in whole.pieces]
        conversation.pieces = whole.pieces
        assert conversation == whole
        return conversation, steps.steering


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    return Log(monkeypatch)


def test_wherever_a_move_begins_it_knows_what_the_whole_log_says(log: Log) -> None:
    dice = random.Random(7)
    log.write(Asked(text="Why?"))
    for number in range(1, 30):
        pieces: list[str] = []
        for entry in turn(number):
            [id] = log.write(entry)
            pieces += [id] if isinstance(entry, Delta) else []
            if dice.random() < 0.5:
                log.read()
        log.store.forget(log.id, pieces)
        log.recent.forget_pieces(log.id)
    log.write(Asked(text="And then?"), *turn(30))
    conversation, _ = log.read()
    assert [round_.step for round_ in conversation.rounds] == [30]


def test_a_later_step_reads_no_more_than_an_early_one(log: Log) -> None:
    log.write(Asked(text="Why?"))
    read = []
    for number in range(1, 60):
        log.write(*turn(number))
        log.read_entries = 0
        log.recent.read(log.id, Toolbox(log.host), log.steps)
        read.append(log.read_entries)

    assert read[-1] == read[5]
    log.read_entries = 0
    log.recent.read(log.id, Toolbox(log.host), log.steps)
    assert log.read_entries == 1


def test_entries_that_redis_has_lost_and_others_took_the_place_of_are_not_believed(
    log: Log,
) -> None:
    log.write(Asked(text="Why?"), *turn(1))
    [*_, last] = log.write(*turn(2))
    log.read()
    log.client.xdel(log.key(), last)
    log.write(result(2, "something else"))

    conversation, _ = log.read()
    assert conversation.calls[-1].result.output == "something else"


def test_pieces_that_were_removed_are_not_removed_again(log: Log) -> None:
    log.write(Asked(text="Why?"), *turn(1))
    conversation, _ = log.recent.read(log.id, Toolbox(log.host), log.steps)
    assert len(conversation.pieces) == 1
    log.store.forget(log.id, conversation.pieces)
    log.recent.forget_pieces(log.id)
    log.write(*turn(2)[:1])

    conversation, _ = log.recent.read(log.id, Toolbox(log.host), log.steps)
    assert len(conversation.pieces) == 1


def test_only_the_last_investigations_are_remembered(log: Log) -> None:
    for number in range(MOST + 1):
        log.write(Asked(text="Why?"), id=str(number))
        log.read(str(number))

    assert list(log.recent._snapshots) == [str(number) for number in range(1, MOST + 1)]
    log.read("0")


def test_cached_statistics_equal_those_computed_from_all_turns(log: Log) -> None:
    dice = random.Random(3)
    log.write(Asked(text="Why?"))
    for number in range(1, 25):
        *before, end = turn(number)
        log.write(*before)
        conversation, steering = log.read()
        # A result that might have come, but another worker has written another one.
        other = conversation.after([result(number, f"perhaps {dice.random()}")])
        log.write(end)
        now, _ = log.read()
        for each in (other, conversation, now):
            fresh = log.steps(Toolbox(log.host)).steering
            assert steering.stats(each) == fresh.stats(each)
            assert steering.after_results(each) == fresh.after_results(each)


def test_a_long_investigation_is_not_gone_through_again(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[ToolCallRecord] = []
    use = Toolbox.use

    def count_use(toolbox: Toolbox, called: ToolCallRecord) -> ToolUse:
        used.append(called)
        return use(toolbox, called)

    monkeypatch.setattr(Toolbox, "use", count_use)
    log.write(Asked(text="Why?"))
    counts = []
    for number in range(1, 50):
        log.write(*turn(number))
        conversation, steps = log.recent.read(log.id, Toolbox(log.host), log.steps)
        used.clear()
        steps.steering.after_results(conversation)
        steps.steering.stats(conversation)
        counts.append(len(used))

    assert counts[-1] == counts[5]
