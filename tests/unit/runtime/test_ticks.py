"""The ticks of continuous agents: when they come, and who starts their iterations."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boyd.models import from_ms
from boyd.models.loop import Ticks
from boyd.store import AgentEntry, Slot
from boyd.testing import Lab
from kit import agent
from virtual_time import BEGIN, VirtualTime

IDS = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True)
INTERVALS = st.floats(0.05, 1e6)
OFFSETS = st.none() | st.floats(0, 1e6)
#: Times in ms since the epoch.
TIMES = st.integers(1_600_000_000_000, 2_400_000_000_000)


@given(IDS, INTERVALS, OFFSETS, TIMES)
def test_each_time_is_in_one_slot(
    agent_id: str, interval: float, offset: float | None, at: int
) -> None:
    ticks = Ticks.of(agent_id, interval, offset)
    slot = ticks.slot(at)

    assert ticks.begin(slot) <= at < ticks.following(at) == ticks.begin(slot + 1)
    assert ticks.following(at) - ticks.begin(slot) == ticks.length == round(interval * 1000)
    assert ticks.slot(ticks.begin(slot)) == slot
    assert ticks.slot(ticks.following(at) - 1) == slot


@given(IDS, INTERVALS, OFFSETS, TIMES)
@settings(max_examples=50)
def test_the_next_start_that_is_announced_is_that_of_beat(
    agent_id: str, interval: float, offset: float | None, at: int
) -> None:
    ticks = Ticks.of(agent_id, interval, offset)
    entry = AgentEntry(
        id=agent_id,
        name=agent_id,
        mode="continuous",
        loop_interval=interval,
        loop_offset=ticks.offset / 1000,
        plugins=[],
        fingerprint="f",
    )
    slot = Slot.at((at + 0.5) / 1000, ticks)
    announced = AgentEntry.from_json(entry.to_json()).next_start(from_ms(at + 0.5))

    assert announced == from_ms(slot.begins + slot.length)


def test_agents_with_the_same_interval_tick_at_different_times() -> None:
    offsets = Counter(Ticks.of(f"agent-{number}", 60).offset // 1000 for number in range(6000))

    assert len(offsets) == 60
    assert max(offsets.values()) < 150


def test_an_agent_ticks_at_the_same_times_in_all_processes_and_releases() -> None:
    assert Ticks.of("web", 60.0) == Ticks(60_000, 51_225)
    assert agent().settings.ticks == Ticks.of("test", 60.0)


def test_with_an_offset_of_zero_an_agent_ticks_at_whole_multiples() -> None:
    entry = Lab(agent(mode="continuous", loop_interval=300, loop_offset=0)).engine.entry()

    assert entry.next_start(from_ms(1_800_000_123_456)) == from_ms(1_800_000_300_000)


# A change of the offset


LENGTH = 60_000


@dataclass(frozen=True)
class Beat:
    """A process that ticks from *start* to *stop*; *claim* takes a slot."""

    ticks: Ticks
    start: int
    stop: int
    claim: Callable[[Slot], bool]

    def attempts(self) -> Iterator[tuple[int, Beat]]:
        """The times when it ticks: at once, and when a slot begins."""
        yield self.start, self
        at = self.ticks.following(self.start)
        while at < self.stop:
            yield at, self
            at += self.ticks.length


def run(clock: VirtualTime, beats: list[Beat]) -> list[int]:
    """Let *beats* tick; the beginnings of the slots that they took."""
    claims = []
    for at, beat in sorted(
        itertools.chain(*(b.attempts() for b in beats)), key=lambda each: each[0]
    ):
        clock.now = at
        slot = Slot.at(at / 1000, beat.ticks)
        if beat.claim(slot):
            claims.append(slot.begins)
    return claims


def new_claim(lab: Lab) -> Callable[[Slot], bool]:
    """Take a slot as this release does."""
    return lambda slot: lab.store.loop_control.begin("beat", slot).outcome in ("started", "joined")


def old_claim(lab: Lab) -> Callable[[Slot], bool]:
    """Take a slot as a release did that knew no offsets: each that begins after the last one."""

    def claim(slot: Slot) -> bool:
        key = "boyd:{test}:loop"
        if int(lab.client.hget(key, "slot") or 0) >= slot.begins:
            return False
        lab.client.hset(key, "slot", slot.begins)
        return True

    return claim


def gaps(claims: list[int]) -> list[int]:
    """The times between slots that were taken."""
    return [after - before for before, after in itertools.pairwise(claims)]


@pytest.mark.parametrize("seed", range(12))
def test_beats_that_disagree_on_the_offset_keep_whole_slots_between_iterations(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    clock = VirtualTime(monkeypatch)
    claim = new_claim(Lab(agent(mode="continuous")))
    end = BEGIN + 40 * LENGTH
    always = Beat(Ticks(LENGTH, draw.randrange(LENGTH)), BEGIN, end, claim)
    others = [
        Beat(
            Ticks(LENGTH, draw.randrange(LENGTH)), start, start + draw.randrange(LENGTH * 9), claim
        )
        for start in (draw.randrange(BEGIN, end) for _ in range(6))
    ]
    between = gaps(run(clock, [always, *others]))

    assert min(between) >= LENGTH
    assert max(between) < 2 * LENGTH
    assert len(between) >= 20


@pytest.mark.parametrize("seed", range(12))
def test_an_upgrade_to_offsets_runs_no_slot_twice_and_skips_at_most_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two beats are restarted one after the other, and one of them goes back and forth."""
    draw = random.Random(seed)
    clock = VirtualTime(monkeypatch)
    lab = Lab(agent(mode="continuous"))
    before, after = Ticks(LENGTH, 0), Ticks(LENGTH, draw.randrange(LENGTH))
    old, new = old_claim(lab), new_claim(lab)
    times = sorted(draw.randrange(BEGIN, BEGIN + 30 * LENGTH) for _ in range(4))
    end = times[-1] + 10 * LENGTH
    down = draw.randrange(2 * LENGTH)
    beats = [
        Beat(before, BEGIN, times[0], old),
        Beat(after, times[0] + down, times[1], new),
        Beat(before, times[1] + down, times[2], old),
        Beat(after, times[2] + down, end, new),
        Beat(before, BEGIN + 1, times[3], old),
        Beat(after, times[3], end, new),
    ]
    claims = run(clock, beats)
    mixed = [slot for slot in claims if slot < times[3]]

    assert max(Counter(before.slot(slot) for slot in mixed).values()) == 1
    assert max(gaps(claims)) < 2 * LENGTH
    assert min(gaps([slot for slot in claims if slot >= times[3]])) == LENGTH
