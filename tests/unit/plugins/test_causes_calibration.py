"""The probabilities of likely causes come true as often as stated, also in worlds that change."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from boyd.plugins.likely_causes.calibration import LEAST_JUDGED, Calibration, PickVerdict
from boyd.plugins.likely_causes.episode import Ailment, FaultEpisode, Pick
from boyd.plugins.likely_causes.outcomes import judge_by_word
from boyd.plugins.likely_causes.ranking import rank
from fault_graphs import Fault, Needs, World, faults

#: The things that caused an episode, by its number in the life of an agent.
Truth = Callable[[random.Random, int, Fault, FaultEpisode], set[str]]
#: Seconds after the beginning of an episode at which people read what is suspected.
READ_AT = (30.0, 60.0, 120.0, 300.0, math.inf)
MESSY = World(missing=0.3, wrong=0.2, intervals=(10.0, 30.0, 60.0), sight=0.7, noise=1.0)
SLOW = World(intervals=(300.0,), starts=300.0, steps=100)
PICK = Pick(0.0, "db", 0.97, "mail", 5)


def find_roots(rng: random.Random, number: int, fault: Fault, episode: FaultEpisode) -> set[str]:
    return fault.roots


def find_any(rng: random.Random, number: int, fault: Fault, episode: FaultEpisode) -> set[str]:
    return {rng.choice(sorted(episode.things))}


def find_first(rng: random.Random, number: int, fault: Fault, episode: FaultEpisode) -> set[str]:
    return {episode.members[0]}


def find_last(rng: random.Random, number: int, fault: Fault, episode: FaultEpisode) -> set[str]:
    return {episode.members[-1]}


def find_nothing(rng: random.Random, number: int, fault: Fault, episode: FaultEpisode) -> set[str]:
    return {"something else"}


def in_turn(period: int, *truths: Truth) -> Truth:
    """Each truth for *period* episodes."""

    def find(rng: random.Random, number: int, fault: Fault, episode: FaultEpisode) -> set[str]:
        truth = truths[number // period % len(truths)]
        return truth(rng, number, fault, episode)

    return find


def turn_round(fault: Fault) -> Fault:
    """The fault, with all that the agent knows of dependencies turned round."""
    needs: Needs = {}
    for thing, others in fault.needs.items():
        for other in others:
            needs.setdefault(other, []).append(thing)
    return replace(fault, needs=needs)


@dataclass
class Life:
    """An agent, the probabilities that people have read, and what base rates would have stated.

    A person names the cause of each episode after its end.
    """

    episodes: int = 0
    stated: list[tuple[float, bool]] = field(default_factory=list)
    own: float = 0.0
    one_in: float = 0.0
    first: float = 0.0

    @property
    def excess(self) -> float:
        """The mean stated probability less the share that was right."""
        return sum(stated - right for stated, right in self.stated) / len(self.stated)

    def watch(
        self, seed: int, world: World, truth: Truth, turns: int = 0, count: int = 200
    ) -> None:
        """Live through *count* episodes; dependencies turn round after each *turns* of them."""
        rng, calibration, firsts = random.Random(seed), Calibration(), 1
        for number, fault in enumerate(faults(seed, count, world)):
            subject = turn_round(fault) if turns and number // turns % 2 else fault
            episode, picks = follow(subject)
            causes = truth(rng, number, fault, episode)
            read_at = episode.since + rng.choice(READ_AT)
            pick = next((pick for at, pick in reversed(picks) if at <= read_at), None)
            if pick is not None:
                self.episodes += 1
                self._read(calibration, pick, causes, firsts / (number + 2))
            firsts += episode.members[0] in causes
            if outcome := judge_by_word(episode, min(causes)):
                calibration = outcome.add_to(calibration, episode)

    def _read(
        self, calibration: Calibration, pick: Pick, causes: set[str], first_share: float
    ) -> None:
        probability = calibration.probability(pick)
        if probability is None or calibration.doubt(pick):
            return
        right, others = pick.name in causes, max(1, pick.suspects - 1)
        first = first_share if pick.name == pick.first else (1 - first_share) / others
        self.stated.append((probability, right))
        self.own += (probability - right) ** 2
        self.one_in += (1 / pick.suspects - right) ** 2
        self.first += (first - right) ** 2


def follow(fault: Fault) -> tuple[FaultEpisode, list[tuple[float, Pick | None]]]:
    """The episode of a fault, and the first suspects, each when it became that."""
    episode: FaultEpisode | None = None
    last: object = None
    picks: list[tuple[float, Pick | None]] = []
    for at, unwell in fault.sightings:
        episode = FaultEpisode.after(episode, unwell, at, 900.0) or episode
        assert episode is not None
        state = {name: (thing.onset, thing.deviation) for name, thing in episode.things.items()}
        if state != last:
            last = state
            pick = rank(episode, fault.needs, 30.0).pick(episode)
            episode = episode.with_pick(pick) if pick else episode
            picks.append((at, pick))
    assert episode is not None
    return episode, picks


def live(world: World, truth: Truth, turns: int = 0, lives: int = 12) -> Life:
    life = Life()
    for seed in range(lives):
        life.watch(seed, world, truth, turns)
    return life


@pytest.mark.long
@pytest.mark.parametrize("world", [World(), World(missing=0.2), World(lag=0.0), MESSY])
def test_stated_probabilities_are_better_than_both_base_rates(world: World) -> None:
    life = live(world, find_roots)

    assert len(life.stated) > 0.7 * life.episodes
    assert life.own < 0.6 * min(life.one_in, life.first)
    assert -0.08 < life.excess < 0.03


@pytest.mark.long
@pytest.mark.parametrize("truth", [find_any, find_first, find_nothing, find_last])
def test_it_abstains_where_it_is_no_better_than_a_base_rate(truth: Truth) -> None:
    life = live(World(), truth)

    assert len(life.stated) <= 0.01 * life.episodes


@pytest.mark.long
@pytest.mark.parametrize(
    ("world", "truth", "turns"),
    [
        (SLOW, find_roots, 0),
        (replace(SLOW, intervals=(10.0, 300.0)), find_roots, 0),
        (World(), in_turn(7, find_roots, find_any), 0),
        (World(), in_turn(30, find_roots, find_first), 0),
        (World(), find_roots, 30),
    ],
    ids=["slow looks", "some slow looks", "weekly", "first after 30", "turned round after 30"],
)
def test_it_is_hardly_too_sure_where_the_truth_changes_or_is_seen_late(
    world: World, truth: Truth, turns: int
) -> None:
    life = live(world, truth, turns)

    assert life.stated
    assert life.own < min(life.one_in, life.first)
    assert life.excess < 0.06


def judge(calibration: Calibration, episode: float, right: bool) -> Calibration:
    return calibration.judge(episode, [PickVerdict(PICK, right)], first_right=not right)


def judge_rights(rights: int) -> Calibration:
    calibration = Calibration()
    for number in range(1, rights + 1):
        calibration = judge(calibration, float(number), right=True)
    return calibration


def judge_picks(times: dict[str, float], end: float) -> dict[str, float]:
    """The weights of first suspects that became that at *times* of an episode, in minutes."""
    things = {name: Ailment(100.0, 100.0 + 60 * end, 1.0) for name in times}
    picks = [PICK._replace(at=100.0 + 60 * at, name=name) for name, at in times.items()]
    outcome = judge_by_word(FaultEpisode(since=100.0, at=9e3, things=things, picks=picks), "db")
    assert outcome is not None
    assert [verdict.is_right for verdict in outcome.verdicts] == [name == "db" for name in times]
    assert outcome.add_to(Calibration(), FaultEpisode(since=100.0, at=9e3, things=things)).episodes
    return {verdict.pick.name: verdict.weight / math.log(2) for verdict in outcome.verdicts}


def test_each_suspect_counts_as_people_are_likely_to_have_read_it() -> None:
    assert judge_picks({"mail": 0, "db": 1}, end=4) == pytest.approx({"mail": 1, "db": 3})


def test_a_suspect_that_nobody_can_have_read_does_not_count() -> None:
    assert judge_picks({"mail": 0, "db": 0.2}, end=0.3) == pytest.approx({"mail": 0, "db": 1})


def test_a_surprise_makes_it_less_sure_until_it_is_right_again() -> None:
    before = judge_rights(60)
    after = judge(before, 61.0, right=False)
    later = after
    for number in range(62, 70):
        later = judge(later, float(number), right=True)

    assert after.reason_to_abstain().startswith("its last forecasts were wrong")
    assert (before.probability(PICK) or 0) > (later.probability(PICK) or 0) > 0.8


def test_it_expects_changes_where_there_have_been_some() -> None:
    changing, steady, number = Calibration(), Calibration(), 0
    for _ in range(4):
        for right in (*(True,) * 30, False, False):
            number += 1
            changing = judge(changing, float(number), right)
            steady = judge(steady, float(number), right=True)
    for _ in range(LEAST_JUDGED):
        number += 1
        changing = judge(changing, float(number), right=True)

    assert (changing.probability(PICK) or 0) < (steady.probability(PICK) or 0)


def test_it_abstains_again_when_it_is_no_longer_right() -> None:
    calibration = judge_rights(60)
    assert (calibration.probability(PICK) or 0) > 0.9
    for number in range(61, 111):
        calibration = judge(calibration, float(number), right=False)

    assert calibration.probability(PICK) is None


def test_two_wrong_causes_in_a_row_end_a_sure_calibration() -> None:
    calibration = judge_rights(60)
    for number in (61, 62):
        calibration = judge(calibration, float(number), right=False)

    assert calibration.reason_to_abstain() == f"0 of {LEAST_JUDGED} episodes have been judged"
    assert judge(calibration, 62.0, right=False) == calibration


def test_an_accurate_calibration_hardly_ever_ends() -> None:
    rng, forgotten = random.Random(3), 0
    for share in (0.5, 0.7, 0.9, 0.97):
        calibration = Calibration()
        for number in range(1, 2000):
            before = calibration
            calibration = judge(before, float(number), rng.random() < share)
            forgotten += calibration.episodes < before.episodes

    assert forgotten <= 8


def test_an_episode_is_judged_once() -> None:
    once = judge(Calibration(), 7.0, right=True)

    assert judge(once, 7.0, right=True) == once
