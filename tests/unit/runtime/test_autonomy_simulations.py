"""Statements of docs/autonomy.md in 200 histories each, counted as the scripts count."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count, islice
from statistics import median

import pytest

from autonomy_kit import Tally, Ward, World, cases_until_offer, rule_of
from boyd.models import EffectName, EffectVerdict
from boyd.runtime.autonomy import case_draws

HISTORIES = range(200)
NEVER = 1e9


def offers(world: World, cases: int = 120, **rule: object) -> list[int | None]:
    """When the action is offered in each of the histories."""
    return [cases_until_offer(world, rule_of(**rule), seed, cases) for seed in HISTORIES]


def heals_with(share: float) -> World:
    """A world in which so many cases end by themselves in time, and the action does nothing."""
    return World(lambda dice: 0.5 if dice.random() < share else NEVER)


PLACEBOS = {
    "most heal": heals_with(0.97),
    "all heal": heals_with(1.0),
    "half heal": heals_with(0.5),
    # Each case ends by itself in time, once people have answered: acting looks like a cure.
    "late": World(lambda dice: 1.5 + dice.random() / 2, answers=lambda dice, ends_at: 1.0),
    "slow people": World(
        lambda dice: dice.expovariate(0.7), answers=lambda dice, ends_at: dice.expovariate(1.0)
    ),
    # People approve just before it ends, however long it lasts.
    "knowing people": World(
        lambda dice: 1.5 + dice.expovariate(0.2), answers=lambda dice, ends_at: ends_at - 0.5
    ),
    "waiting people": World(
        lambda dice: 1.5 + 48.5 * dice.random(),
        answers=lambda dice, ends_at: ends_at - 0.1 - 1.4 * dice.random(),
    ),
    # People approve what would have healed by itself.
    "selective": World(lambda dice: dice.expovariate(0.7), approves=lambda ends_at: ends_at < 1),
    "unclear": World(lambda dice: dice.expovariate(2.0), told=lambda dice, effective: effective),
}


@pytest.mark.long
@pytest.mark.parametrize("name", PLACEBOS)
def test_an_action_that_does_nothing_is_never_offered(name: str) -> None:
    often = offers(PLACEBOS[name], cases=60, at_least=0.6, holdout=0.4)
    seldom = offers(PLACEBOS[name], at_least=0.6)

    assert [number for number in [*often, *seldom] if number] == []


def test_without_the_comparison_a_placebo_would_be_offered() -> None:
    results = offers(PLACEBOS["most heal"], at_least=0.6, holdout=0, require_uplift=False)

    assert sum(number is not None for number in results) > 190


@pytest.mark.long
def test_an_action_that_helps_is_offered_though_people_take_their_time() -> None:
    world = World(
        lambda dice: NEVER, cures=0.99, answers=lambda dice, ends_at: dice.expovariate(0.3)
    )
    numbers = [number or 10_000 for number in offers(world, cases=600, at_least=0.8)]

    assert median(numbers) <= 55


@pytest.mark.long
@pytest.mark.parametrize("share", [0.0, 0.3, 0.6])
def test_an_action_that_helps_is_offered(share: float) -> None:
    world = World(lambda dice: 0.5 if dice.random() < share else NEVER, cures=0.99)
    numbers = [number or 10_000 for number in offers(world, cases=600, at_least=0.8)]

    # The more heals by itself, the longer it takes to show that the action helps.
    assert median(numbers) <= {0.0: 70, 0.3: 120, 0.6: 300}[share]


@pytest.mark.long
@pytest.mark.parametrize("at_least", [0.5, 0.8, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("untold", ["at random", "failures", "successes"])
def test_unclear_verdicts_earn_nothing(at_least: float, untold: str) -> None:
    chances = {"at random": (0.3, 0.3), "failures": (0.0, 1.0), "successes": (0.5, 0.0)}
    of_good, of_bad = chances[untold]
    world = World(
        lambda dice: NEVER,
        cures=at_least - 0.005,
        told=lambda dice, effective: dice.random() >= (of_good if effective else of_bad),
    )
    results = offers(world, at_least=at_least, holdout=0, require_uplift=False)

    assert sum(number is not None for number in results) <= 0.05 * len(results)


def offers_after_bursts(after: int) -> int:
    """The number of offers at 0.9 in 60 classes whose bursts of 1 to 9 outcomes work in 0.8."""
    rule, offered = rule_of(at_least=0.9, after=after, holdout=0, require_uplift=False), 0
    for seed in range(60):
        tally, dice, left = Tally(rule), random.Random(seed), 0
        for _ in range(300):
            if not left:
                left, works = dice.randint(1, 9), dice.random() < 0.8
            left -= 1
            tally.draw(False)
            tally.count("effective" if works else "no effect", False)
            if tally.is_offered:
                offered += 1
                break
    return offered


def test_outcomes_that_come_in_bursts_need_a_larger_after() -> None:
    assert offers_after_bursts(after=100) <= 0.05 * 60 < 0.1 * 60 < offers_after_bursts(after=20)


#: Draws when outcomes come, in seconds, and whether they were effective.
History = Callable[[random.Random], Iterator[tuple[float, bool]]]
HOUR = 3600.0


def alike(most: int, share: float) -> History:
    """A burst a day, of up to so many outcomes that are all effective or none."""

    def draw(dice: random.Random) -> Iterator[tuple[float, bool]]:
        for day in count():
            works = dice.random() < share
            for number in range(dice.randint(1, most)):
                yield 24 * HOUR * day + 120 * number, works

    return draw


def changing(hourly: float, by_day: float, by_night: float) -> History:
    """Outcomes that come independently of each other, with a share for day and for night."""

    def draw(dice: random.Random) -> Iterator[tuple[float, bool]]:
        hour = dice.random() * 24
        while True:
            hour += dice.expovariate(hourly)
            yield hour * HOUR, dice.random() < (by_day if 8 <= hour % 24 < 20 else by_night)

    return draw


def outcomes_until_offer(history: History, most: int, **rule: object) -> list[int | None]:
    """The outcomes after which it is offered, if it is within *most*, in each of the histories."""
    numbers: list[int | None] = []
    for seed in HISTORIES:
        tally = Tally(rule_of(holdout=0, require_uplift=False, **rule))
        outcomes = enumerate(islice(history(random.Random(seed)), most), 1)
        numbers.append(next((n for n, outcome in outcomes if _offers(tally, *outcome)), None))
    return numbers


def _offers(tally: Tally, at: float, works: bool) -> bool:
    tally.count("effective" if works else "no effect", None, at)
    return tally.is_offered


#: Worlds with a common cause, the share that they do not have, and the false offers per cent that
#: there are at least if each outcome counts by itself.
COMMON_CAUSES = {
    "bursts of 5": (alike(5, 0.79), 0.8, 25),
    "bursts of 20": (alike(20, 0.79), 0.8, 50),
    "day and night": (changing(12, 0.99, 0.6), 0.9, 25),
}


@pytest.mark.long
@pytest.mark.parametrize("name", COMMON_CAUSES)
def test_few_actions_are_offered_falsely_if_a_burst_counts_once(name: str) -> None:
    history, at_least, otherwise = COMMON_CAUSES[name]
    by_itself, once = (
        [n for n in outcomes_until_offer(history, 120, at_least=at_least, burst=burst) if n]
        for burst in (0, HOUR)
    )

    assert len(once) <= 0.05 * len(HISTORIES) < otherwise / 100 * len(HISTORIES) <= len(by_itself)


@pytest.mark.long
def test_the_replica_counts_as_the_scripts_do(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(7)
    draws = [dice.random() * 0.3 for _ in range(40)]
    monkeypatch.setattr(case_draws, "uniform", lambda *_: draws[-1])
    ward, rule = Ward(), rule_of(at_least=0.5, after=10_000)
    tally = Tally(rule)
    while draws:
        waits = draws[-1] < 0.1
        verdicts: list[EffectName] = ["effective", "effective", "no effect", "cannot tell"]
        verdict = dice.choice(verdicts)
        is_well = dice.random() < 0.3
        ward.sick, ward.verdict = True, False
        tally.draw(waits)
        ward.lab.run()
        ward.approve()
        if waits:
            ward.verdict = is_well
            ward.look(final=True)
        if waits and is_well:
            tally.heal()
        else:
            ward.verdict = EffectVerdict(verdict=verdict)
            ward.look(final=True)
            tally.count(verdict, waits)
        ward.sick, _ = False, draws.pop()
        ward.lab.run()
        ward.lab.run()

    for name in ("effective", "failed", "unclear", "bursts"):
        assert getattr(ward.record, name) == getattr(tally.record, name), name
    # The scripts measure real time, the replica none.
    assert ward.record.trial.patched({"took": 0}) == tally.record.trial
    assert ward.record.drop == pytest.approx(tally.record.drop)
    assert ward.record.trial.needed > 2
