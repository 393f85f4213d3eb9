"""Steps of which Redis refuses a part: the agent goes on, and nothing is done twice."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from boyd.store.keys import Keys
from faults.observation_gaps import longest
from guarded_redis import Guarded
from harness import Deployment, wait_until
from measuring import Measure

pytestmark = [pytest.mark.real, pytest.mark.slow]

TICKING = "agents.traced:ticking"
KEYS = Keys("ticking")
#: The keys that an iteration's steps write to.
WRITTEN = (
    *(
        KEYS.loop,
        KEYS.iteration,
        KEYS.due,
        KEYS.jobs,
        KEYS.events,
        KEYS.history,
        KEYS.observers_ran,
    ),
    *(KEYS.observers_health, KEYS.runs_pending, KEYS.intake, KEYS.audit_open),
)
#: Seconds that a fault lasts, and within which an iteration that begins after it has succeeded.
LASTS, WITHIN = 0.3, 20.0
#: What a worker needs to have a connection at all, or asks only while it starts.
LEFT_ALONE = frozenset(
    {"ping", "hello", "select", "info", "script|load", "script|exists", "evalsha", "eval"}
)


class Watch:
    """Notices when the agent has gone on, and how long it took."""

    def __init__(self, deployment: Deployment) -> None:
        self._history = deployment.agent("ticking").history
        self._deployment = deployment
        self.worst = (0.0, "nothing")

    def recovers(self, goal: str) -> None:
        """Wait for the success of an iteration that begins from now on."""
        since, began = self._deployment.store.clock.now(), time.monotonic()

        def goes_on() -> bool:
            results = self._history.results(5)
            return any(r.success and r.action_results and r.started_at > since for r in results)

        try:
            wait_until(goes_on, WITHIN)
        except AssertionError:
            raise AssertionError(f"{goal}: nothing went on for {WITHIN:g} s") from None
        self.worst = max(self.worst, (time.monotonic() - began, goal))

    def duplicates(self) -> list[str]:
        """The effects that occur more than once."""
        lines = [line.rpartition(":")[0] for line in self._deployment.effects()]
        counted = Counter(line for line in lines if line.startswith("act:"))
        return [line for line, times in counted.items() if times > 1]


@pytest.fixture
def redis_with_users(tmp_path: Path, redis_server: str) -> Iterator[Guarded]:
    """A Redis with users."""
    redis = Guarded(tmp_path)
    yield redis
    redis.end()


@pytest.fixture
def ticking(redis_with_users: Guarded, tmp_path: Path) -> Iterator[Deployment]:
    """An agent that ticks five times a second, with an impatient worker."""
    with Deployment(redis_with_users.urls["admin"], tmp_path) as deployment:
        quick = {"LEASE": "1", "RESEND_AFTER": "0.5", "SWEEP": "0.3"}
        deployment.environment.update(
            {f"BOYD_TIMING__{name}": value for name, value in quick.items()}
        )
        deployment.environment["BOYD_REDIS_URL"] = redis_with_users.urls["worker"]
        deployment.worker("worker", TICKING)
        deployment.environment["BOYD_REDIS_URL"] = redis_with_users.urls["beat"]
        deployment.beat("beat", TICKING)
        Watch(deployment).recovers("the start")
        yield deployment


def test_a_key_of_another_type_in_place_of_each_key_in_turn_stops_nothing(
    ticking: Deployment, redis_with_users: Guarded, measure: Measure
) -> None:
    watch = Watch(ticking)
    for key in WRITTEN:
        redis_with_users.admin.set(key, "foreign")
        time.sleep(LASTS)
        redis_with_users.admin.delete(key)
        watch.recovers(key)
    took, key = watch.worst
    measure(17, f"a foreign key for {LASTS} s: the next success after {took:.1f} s at most ({key})")

    blind = longest(ticking, ["ticking"])
    measure.most(15, "the longest time without an observation", blind, "foreign keys")

    assert watch.duplicates() == []


@pytest.mark.long
def test_each_command_that_is_forbidden_in_turn_stops_nothing(
    ticking: Deployment, redis_with_users: Guarded, measure: Measure
) -> None:
    watch = Watch(ticking)
    users = redis_with_users.admin.acl_list()
    [rules] = [line for line in users if line.startswith("user worker ")]
    commands = [word[1:] for word in rules.split() if word.startswith("+")]
    for command in sorted(set(commands) - LEFT_ALONE):
        redis_with_users.admin.execute_command("ACL", "SETUSER", "worker", f"-{command}")
        time.sleep(LASTS)
        redis_with_users.admin.execute_command("ACL", "SETUSER", "worker", f"+{command}")
        watch.recovers(command)
    took, command = watch.worst
    measure(
        17, f"a command forbidden for {LASTS} s: the next success after {took:.1f} s ({command})"
    )

    blind = longest(ticking, ["ticking"])
    measure.most(15, "the longest time without an observation", blind, "forbidden commands")

    assert watch.duplicates() == []
