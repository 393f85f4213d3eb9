"""Actions that lie: whatever they report, their verdict is true, and harm is not repeated.

Each row is a small world. Its states are letters, one for each time that somebody looks at it: the
first is that before the action, those after the bar follow the action, and the last one stays.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import fakeredis
import pytest
from pydantic import BaseModel

from boyd import Agent, naming
from boyd.models import Anomaly, CallRequest, EffectVerdict, JsonObject
from boyd.models.base import Level
from boyd.models.effect import EffectChecks
from boyd.plugin import Action, Strategy
from boyd.testing import Lab
from kit import Recorder, choice, overdue, person, plugin

ACTION = "p:mend"
#: The most rounds of a row, and rounds without anything new after which it ends.
ROUNDS, QUIET = 12, 2
#: Seconds between two looks.
STEP = 6.0
Truth = Literal["helps", "useless", "harms", "unknown"]


async def _coroutine() -> bool:
    return True


def _raise(error: BaseException) -> Any:
    raise error


def _verdict(name: Any, final: bool = True) -> EffectVerdict:
    return EffectVerdict.model_construct(verdict=name, evidence="seen", final=final)


def _sleep() -> None:
    time.sleep(30)


#: What `verify` answers in each state.
ANSWERS: dict[str, Callable[[], Any]] = {
    "w": lambda: True,
    "e": lambda: "effective",
    "v": lambda: _verdict("effective"),
    "p": lambda: _verdict("effective", final=False),
    "b": lambda: False,
    "f": lambda: "no effect",
    "h": lambda: "worse",
    "d": lambda: _verdict("worse", final=False),
    "n": lambda: None,
    "u": lambda: "cannot tell",
    "r": lambda: _raise(ConnectionError("refused")),
    "x": _sleep,
    "s": lambda: _raise(SystemExit(3)),
    "k": lambda: _raise(KeyboardInterrupt()),
    "g": lambda: _raise(GeneratorExit()),
    "c": _coroutine,
    "1": lambda: 1,
    "0": lambda: 0,
    "2": lambda: "better",
    "3": lambda: object(),
    "4": list,
    "5": lambda: {"verdict": "good"},
    "6": lambda: _verdict("great"),
    "7": lambda: float("nan"),
    "8": lambda: b"effective",
    "9": lambda: lambda: True,
    "y": lambda: "",
    "z": lambda: EffectVerdict,
}
#: States in which everybody sees that nothing is wrong.
WELL = "wevp"


@dataclass(frozen=True)
class Row:
    """A lying action.

    Attributes:
        name: what it does.
        states: the state before it, a bar, and those after it.
        truth: what it has really done.
        verdict: Boyd's, or `unneeded` if it is not executed.
        call: how its call ends after it has done that.
        rollback: what its rollback does.
        noise: what else changes all the time.
        restarts: the round before which the worker is another one.
        hidden: whether no check could have seen the truth.
        checks: how it is checked.
        agent: settings of the agent.
    """

    name: str
    states: str
    truth: Truth
    verdict: str
    call: str = "returns"
    rollback: str = "none"
    noise: str = "none"
    restarts: int | None = None
    hidden: bool = False
    checks: dict[str, Any] = field(default_factory=dict)
    agent: JsonObject = field(default_factory=dict)


LASTS: dict[str, Any] = {"sustained": 10.0}
RAISES: dict[str, Any] = {"raises": "no effect"}

ROWS = [
    # It helps.
    Row("helps at once", "b|w", "helps", "effective"),
    Row("helps after a while", "b|bbw", "helps", "effective"),
    Row("helps, and says so in a word", "b|be", "helps", "effective"),
    Row("helps, and says so with evidence", "b|v", "helps", "effective"),
    Row("helps, while the check cannot connect at first", "b|rrw", "helps", "effective"),
    Row("helps, while nobody can tell at first", "b|nnw", "helps", "effective"),
    Row("helps after a dip", "b|dw", "helps", "effective", rollback="works"),
    Row("helps after a dip, and lasts", "b|bdww", "helps", "effective", checks=LASTS),
    Row("helps for good after a flap", "b|wbwww", "helps", "effective", checks=LASTS),
    Row("helps, and the checks are never sure", "b|p", "helps", "effective"),
    Row("helps, and fails", "b|w", "helps", "effective", call="fails"),
    Row("helps, and hangs", "b|w", "helps", "effective", call="hangs"),
    Row("helps, and ends its process", "b|w", "helps", "effective", call="exits"),
    Row("helps, and returns no JSON", "b|w", "helps", "effective", call="garbage"),
    Row("helps, and returns a coroutine", "b|w", "helps", "effective", call="coroutine"),
    Row("helps while the severity flickers", "b|bw", "helps", "effective", noise="severity"),
    Row("helps beside noisy neighbours", "b|bw", "helps", "effective", noise="neighbours"),
    Row("helps, and its worker restarts", "b|bw", "helps", "effective", restarts=1),
    Row("helps what was harmed before", "h|bw", "helps", "effective"),
    # It does nothing.
    Row("does nothing", "b|b", "useless", "no effect"),
    Row("does nothing, says the first check", "b|f", "useless", "no effect"),
    Row("was well before", "w|w", "useless", "unneeded"),
    Row("was well before, in a word", "e|w", "useless", "unneeded"),
    Row("was well before, with evidence", "v|v", "useless", "unneeded"),
    Row("was well before, and would flap", "w|wbwb", "useless", "unneeded", checks=LASTS),
    Row("was well before, and would fail", "w|w", "useless", "unneeded", call="fails"),
    Row("was perhaps well before", "p|b", "useless", "no effect"),
    Row("heals by itself later", "b|bbw", "useless", "effective", hidden=True),
    Row("flaps, and nobody waits", "b|wb", "useless", "effective", hidden=True),
    Row("flaps", "b|wbwbwbwbwb", "useless", "no effect", checks=LASTS),
    Row("flaps the other way round", "b|bwbwbwbwbwb", "useless", "no effect", checks=LASTS),
    Row("flaps, and raises in between", "b|wrwbb", "useless", "no effect", checks=LASTS),
    Row("seems to help at the end only", "b|pb", "useless", "no effect"),
    Row("never answers", "b|r", "useless", "cannot tell"),
    Row("never answers, which means no effect", "b|r", "useless", "no effect", checks=RAISES),
    Row("answers late", "b|rrb", "useless", "no effect", checks=RAISES),
    Row("does nothing, and then nobody can tell", "b|bbn", "useless", "cannot tell"),
    Row("does nothing, and fails", "b|b", "useless", "no effect", call="fails"),
    Row("does nothing, and hangs", "b|b", "useless", "no effect", call="hangs"),
    Row("does nothing, and ends its process", "b|b", "useless", "no effect", call="exits"),
    Row("does nothing, severity flickers", "b|b", "useless", "no effect", noise="severity"),
    Row("does nothing, the type flickers", "b|b", "useless", "no effect", noise="degree"),
    Row("does nothing, neighbours flicker", "b|b", "useless", "no effect", noise="neighbours"),
    Row("does nothing, its worker restarts", "b|b", "useless", "no effect", restarts=2),
    Row("did nothing, its worker restarts", "b|f", "useless", "no effect", restarts=4),
    # It does harm.
    Row("harms, and is undone", "b|h", "harms", "worse", rollback="works"),
    Row("harms, and has no rollback", "b|h", "harms", "worse"),
    Row("harms after a while", "b|bbh", "harms", "worse", rollback="works"),
    Row("harms what was harmed before", "h|h", "harms", "worse", rollback="works"),
    Row("is good at first, then bad", "b|wh", "harms", "worse", "returns", "works", checks=LASTS),
    Row("dips, is good, then bad", "b|dwh", "harms", "worse", checks=LASTS),
    Row("is good at first, and nobody waits", "b|wh", "harms", "effective", hidden=True),
    Row("harms, and is perhaps bad for ever", "b|d", "harms", "worse", rollback="works"),
    Row("harms, and its rollback does nothing", "b|h", "harms", "worse", rollback="empty"),
    Row("harms, and its rollback fails", "b|h", "harms", "worse", rollback="fails"),
    Row("harms, and its rollback hangs", "b|h", "harms", "worse", rollback="hangs"),
    Row(
        "harms, and must not be undone",
        "b|h",
        "harms",
        "worse",
        rollback="works",
        agent={"roll_back": False},
    ),
    Row(
        "harms, and may be repeated",
        "b|h",
        "harms",
        "worse",
        rollback="works",
        agent={"hold": False},
    ),
    Row("harms, and fails", "b|h", "harms", "worse", call="fails", rollback="works"),
    Row("harms, and hangs", "b|h", "harms", "worse", call="hangs", rollback="works"),
    Row("harms, and ends its process", "b|h", "harms", "worse", call="exits"),
    Row("harms, and returns no JSON", "b|h", "harms", "worse", call="garbage"),
    Row("kills what it checks", "b|r", "harms", "cannot tell"),
    Row("kills what it checks, and fails", "b|r", "harms", "cannot tell", call="fails"),
    Row("kills what it checks, which is told", "b|r", "harms", "no effect", checks=RAISES),
    Row("harms, severity flickers", "b|h", "harms", "worse", rollback="works", noise="severity"),
    Row("harms, the type flickers", "b|h", "harms", "worse", rollback="works", noise="degree"),
    Row("harms, neighbours flicker", "b|h", "harms", "worse", rollback="works", noise="neighbours"),
    Row(
        "harms, and the fault comes and goes",
        "b|h",
        "harms",
        "worse",
        rollback="works",
        noise="calm",
    ),
    Row(
        "harms, its worker restarts before the check",
        "b|bbh",
        "harms",
        "worse",
        rollback="works",
        restarts=1,
    ),
    Row(
        "harms, its worker restarts after the verdict",
        "b|h",
        "harms",
        "worse",
        rollback="works",
        restarts=3,
    ),
    # Nobody can tell.
    Row("is not seen", "b|n", "unknown", "cannot tell"),
    Row("is not seen, says the check", "b|u", "unknown", "cannot tell"),
    Row("has a check that hangs", "b|x", "unknown", "cannot tell"),
    Row("has a check that exits", "b|s", "unknown", "cannot tell"),
    Row("has a check that is interrupted", "b|k", "unknown", "cannot tell"),
    Row("has a check that ends a generator", "b|g", "unknown", "cannot tell"),
    Row("has a check that returns a coroutine", "b|c", "unknown", "cannot tell"),
    *(
        Row(f"has a check that returns {name}", f"b|{state}", "unknown", "cannot tell")
        for name, state in [
            *(("one", "1"), ("zero", "0"), ("another word", "2"), ("an object", "3")),
            *(("a list", "4"), ("a wrong table", "5"), ("a wrong verdict", "6"), ("NaN", "7")),
            *(("bytes", "8"), ("a function", "9"), ("an empty text", "y"), ("a class", "z")),
        ]
    ),
    Row("helps together with another action", "b|bw", "unknown", "cannot tell", noise="other"),
]


class Target(BaseModel):
    """The params of the action."""

    host: str = "web"


class World:
    """The world of one row, and an agent that always wants to mend what it sees broken in it."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.before, _, self.after = row.states.partition("|")
        self.calls = 0
        self.undone = 0
        self.looks = 0
        self.round = 0
        self.client: Any = fakeredis.FakeRedis(decode_responses=True)
        self.lab = self.start()

    def start(self) -> Lab:
        """A worker that goes on with what Redis knows."""
        row = self.row
        action = Action(
            name="mend",
            params=Target,
            target="host",
            timeout=0.05 if "x" in row.states or "hangs" in (row.call, row.rollback) else 5.0,
            execute=self._act,
            verify=self._verify,
            checks=EffectChecks(within=30.0, every=STEP, **row.checks),
            **({} if row.rollback == "none" else {"rollback": self._undo}),
        )
        wants = Strategy(
            name="s",
            decide=lambda: choice(ACTION, params={"host": "web"}),
            applicable_when=lambda: bool(self._anomalies()),
        )
        other = Action(name="other", params=Target, target="host", execute=lambda: "done")
        own = plugin(wants, action, other, on_orient=lambda: {"anomalies": self._anomalies()})
        settings = {ACTION: row.agent} if row.agent else {}
        return Lab(Agent("test", plugins=[own], verification=settings), client=self.client)

    @property
    def state(self) -> str:
        """The state as it is now."""
        if not self.calls:
            return self.before
        if self.undone and self.row.rollback == "works":
            return "b"
        return self.after[min(self.looks, len(self.after) - 1)]

    def _anomalies(self) -> list[JsonObject]:
        odd, noise = self.round % 2 == 1, self.row.noise
        neighbour = Anomaly(type="noise", description="", severity="low")
        if self.row.verdict != "unneeded" and (
            (self.calls and self.state in WELL) or (noise == "calm" and odd)
        ):
            return []
        severity: Level = "critical" if noise == "severity" and odd else "high"
        type = "web-burning" if noise == "degree" and odd else "web-broken"
        anomaly = Anomaly(
            type=type, description=f"{self.round}", severity=severity, affected_resources=["web"]
        )
        anomalies = [anomaly, *([neighbour] if noise == "neighbours" and odd else [])]
        return [each.to_wire() for each in anomalies]

    def _act(self) -> Any:
        self.calls += 1
        endings: dict[str, Callable[[], Any]] = {
            "returns": lambda: "done",
            "fails": lambda: _raise(RuntimeError("no")),
            "hangs": _sleep,
            "exits": lambda: _raise(SystemExit(1)),
            "garbage": object,
            "coroutine": _coroutine,
        }
        return endings[self.row.call]()

    def _verify(self) -> Any:
        state = self.state
        if self.calls:
            self.looks += 1
        return ANSWERS[state]()

    def _undo(self) -> None:
        self.undone += 1
        if self.row.rollback == "fails":
            raise RuntimeError("no")
        if self.row.rollback == "hangs":
            _sleep()

    def live(self) -> None:
        """Let the agent look, act and verify for a while."""
        quiet, before = 0, None
        for self.round in range(ROUNDS):
            quiet = quiet + 1 if before == (self.calls, self.looks) else 0
            before = self.calls, self.looks
            if quiet == QUIET and self.round > (self.row.restarts or 0):
                break
            if self.round == self.row.restarts:
                self.lab = self.start()
            self.lab.run()
            if self.row.noise == "other" and self.round == 0:
                self._act_otherwise()
            self._wait()

    def _act_otherwise(self) -> None:
        params: JsonObject = {"host": "web"}
        request = CallRequest(kind="execute", action="p:other", params=params, actor=person("ann"))
        self.lab.launcher.call(request, None)
        self.lab.deliver()

    def _wait(self) -> None:
        """Let the time pass until the next check."""
        prefix = "boyd:{test}:"
        for name in self.client.zrange(f"{prefix}due", 0, -1):
            if not name.startswith("verify:"):
                continue
            job, execution = f"{prefix}{name}", f"{prefix}execution:{naming.parts(name)[1]}"
            for key, times in ((job, ("wellSince", "restoredBy")), (execution, ("verifyUntil",))):
                for time_field in times:
                    if at := self.client.hget(key, time_field):
                        step = STEP * (1000 if key == execution else 1)
                        self.client.hset(key, time_field, float(at) - step)
            overdue(self.lab, name)

    def verdicts(self) -> Sequence[str | None]:
        """The verdicts on all executions, in order."""
        entries = self.lab.store.executions.page(50).executions[::-1]
        return [
            entry.verification.verdict if entry.verification else None
            for entry in entries
            if entry.action == ACTION and not naming.is_rollback(entry.id)
        ]


@pytest.fixture(autouse=True)
def _as_a_worker() -> Iterator[None]:
    """Handle Ctrl-C as a worker does, in which a plugin's `KeyboardInterrupt` is no such signal."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.long
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_lying_action_is_judged_truly_and_its_harm_is_not_repeated(row: Row) -> None:
    world = World(row)
    world.live()
    verdicts = world.verdicts()

    if row.verdict == "unneeded":
        assert (verdicts, world.calls) == ([], 0)
        return
    assert verdicts[0] == row.verdict
    if row.truth != "helps" and not row.hidden:
        assert "effective" not in verdicts
    if "worse" in verdicts:
        assert verdicts.index("worse") == len(verdicts) - 1 == world.calls - 1
        assert world.undone <= 1
    if row.verdict == "no effect":
        assert world.calls == 1
    if row.verdict == "cannot tell":
        assert world.calls <= 2


def test_harm_is_not_repeated_by_a_newer_plugin_that_cannot_verify() -> None:
    world = World(Row("harms", "b|h", "harms", "worse", rollback="works"))
    world.live()
    newer = Recorder()
    wants = Strategy(name="s", decide=lambda: choice(ACTION, params={"host": "web"}))
    own = plugin(wants, newer.action("mend", params=Target, target="host"))
    lab = Lab(Agent("test", plugins=[own]), client=world.client)

    [result] = lab.run().action_results

    assert (result.prevented, newer.calls) == ("held", [])


def test_the_matrix_has_every_kind_of_lie() -> None:
    assert len(ROWS) >= 60
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert {row.truth for row in ROWS} == {"helps", "useless", "harms", "unknown"}
    assert {state for row in ROWS for state in row.states} - {"|"} == set(ANSWERS)
