"""A replay reports changes of rules and options of built-in plugins, and no refactoring of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from boyd import LoopResult
from boyd.agent import agent_from_file
from boyd.models.tape import ReplayedIteration
from replay_kit import differing, record, replay_with, write_agent

ITERATIONS = 21

AGENT = """
id = "shop"
plugins_dir = "plugins"

[budgets]
"shop:scale" = { limit = 4, window = 600 }

[[approvals.policies]]
actions = ["shop:shrink"]
required = { min_approvals = 2 }

[[plugins]]
use = "shop"

[[plugins]]
use = "rules"
[[plugins.options.rules]]
name = "busy"
source = "shop/load"
min_severity = "info"
value = "${data.load}"
above = 70
action = "shop:scale"
params = { host = "${data.host}", by = 1 }
confidence = 0.9

[[plugins.options.rules]]
name = "failing"
source = "shop/errors"
when = "data.errors > 4.0"
action = "shop:restart"
params = { host = "${data.host}" }
confidence = 0.8

[[plugins.options.rules]]
name = "idle"
source = "shop/load"
min_severity = "info"
value = "${data.load}"
below = 25
action = "shop:shrink"
requires_approval = true

[[plugins]]
use = "approval-policy"
[plugins.options]
risks = ["critical"]
actions = ["shop:drop"]
targets = { host = ["h2"] }
"""

PLUGIN = '''
"""Observes a shop; rules decide."""

from boyd import Context, Observation, Plugin, action, observer


class Shop(Plugin):
    id = "shop"

    @observer()
    def look(self, ctx: Context) -> list[Observation]:
        number = ctx.iteration or 0
        host, load, errors = f"h{number % 3}", number * 37 % 101, number * 3 % 8
        return [
            Observation(
                source="shop/load", type="metric", severity="info",
                data={"load": load, "host": host},
            ),
            Observation(
                source="shop/errors", type="metric", data={"errors": errors, "host": host},
                severity="error" if errors > 6 else "warning",
            ),
        ]

    @action(min_confidence=0.6, target="host")
    def scale(self, params: dict) -> str:
        return "scaled"

    @action(min_confidence=0.6, risk="high", target="host")
    def restart(self, params: dict) -> str:
        return "restarted"

    @action()
    def shrink(self, params: dict) -> str:
        return "shrunk"
'''

_BUSY, _FAILING, _IDLE = (
    f"[[plugins.options.rules]]{part}"
    for part in AGENT.split("[[plugins]]")[2].split("[[plugins.options.rules]]")[1:]
)
#: Changes of rules, options and the agent file, and a difference that is reported.
MUTANTS: dict[str, tuple[str, str, str]] = {
    "a lower limit": ("above = 70", "above = 40", "newly automatic"),
    "a higher limit": ("above = 70", "above = 90", "flipped"),
    "a limit on the other side": ("above = 70", "below = 70", "flipped"),
    "a limit that is reached sooner": ("below = 25", "below = 40", "newly asked"),
    "a limit that is reached later": ("below = 25", "below = 5", "acts less"),
    "another number": ('"${data.load}"\nabove', '"${data.errors}"\nabove', "flipped"),
    "a wider condition": ("data.errors > 4.0", "data.errors > 1.0", "newly automatic"),
    "a narrower condition": ("data.errors > 4.0", "data.errors > 5.0", "flipped"),
    "another condition": ("data.errors > 4.0", 'data.host == \\"h1\\"', "newly automatic"),
    "no condition": ('when = "data.errors > 4.0"\n', "", "newly automatic"),
    "a higher severity": ('"shop/errors"', '"shop/errors"\nmin_severity = "error"', "flipped"),
    "another source": ('"shop/errors"', '"shop/faults"', "flipped"),
    "a wider source": ('"shop/errors"\nwhen = "data.errors > 4.0"', '"shop/*"', "flipped"),
    "another action": ('action = "shop:restart"', 'action = "shop:scale"', "flipped"),
    "a missing action": ('action = "shop:restart"', 'action = "shop:reboot"', "missing action"),
    "a parameter": ("by = 1", "by = 2", "other params"),
    "one parameter less": (", by = 1", "", "other params"),
    "a fixed target": ('"${data.host}", by', '"h9", by', "newly automatic"),
    "a lower confidence": ("confidence = 0.9", "confidence = 0.5", "newly asked"),
    "too low a confidence": ("confidence = 0.8", "confidence = 0.59", "newly asked"),
    "no approval": ("requires_approval = true", "", "newly automatic"),
    "an approval": (
        "confidence = 0.9",
        "confidence = 0.9\nrequires_approval = true",
        "newly asked",
    ),
    "a risk": ("confidence = 0.8", 'confidence = 0.8\nrisk = "critical"', "newly asked"),
    "a policy of risks": ('["critical"]', '["high", "critical"]', "newly asked"),
    "a policy of actions": ('["shop:drop"]', '["shop:s*"]', "newly asked"),
    "a policy of other targets": ('["h2"]', '["h1"]', "newly automatic"),
    "no policy of targets": ('{ host = ["h2"] }', "{}", "newly automatic"),
    "a policy of classes": (
        'risks = ["critical"]',
        'risks = ["critical"]\nreversibility = ["unknown"]',
        "newly asked",
    ),
    "fewer approvals": ("min_approvals = 2", "min_approvals = 1", "other approval"),
    "a smaller budget": ("limit = 4", "limit = 1", "newly asked"),
    "the order of rules": (f"{_BUSY}{_FAILING}", f"{_FAILING}{_BUSY}", "flipped"),
    "a rule less": (_IDLE, "", "acts less"),
}

#: Changes that change nothing.
REFACTORINGS: dict[str, tuple[str, str]] = {
    "a number with a fraction": ("above = 70", "above = 70.0"),
    "an equal condition": ("data.errors > 4.0", "!(data.errors <= 4.0)"),
    "a condition with more": ("data.errors > 4.0", "data.errors > 4.0 && has(data.host)"),
    "a pattern": ('"shop/errors"', '"shop/err*"'),
    "a default": ('"shop/errors"', '"shop/errors"\nmin_severity = "warning"'),
    "a rationale": ("confidence = 0.9", 'confidence = 0.9\nrationale = "much to do"'),
    "another name": ('name = "failing"', 'name = "faulty"'),
    "a rule that never matches": (
        _BUSY,
        f"{_IDLE.replace('25', '-1').replace('idle', 'x')}{_BUSY}",
    ),
    "a confidence that suffices": ("confidence = 0.9", "confidence = 0.7"),
    "spaces": ("above = 70", "\n\nabove   =   70\n"),
}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[LoopResult]:
    """The recorded iterations of the agent."""
    path = write_agent(tmp_path_factory.mktemp("rules"), AGENT, PLUGIN)
    return record(agent_from_file(path), ITERATIONS)


def replay(
    folder: Path, old: str, new: str, records: Sequence[LoopResult]
) -> list[ReplayedIteration]:
    assert AGENT.count(old) >= 1
    return replay_with(write_agent(folder, AGENT.replace(old, new, 1), PLUGIN), records)


def test_the_recorded_iterations_are_of_every_kind(records: list[LoopResult]) -> None:
    assert {item.decision.action for item in records if item.decision} == {
        *("no-op", "shop:scale", "shop:restart", "shop:shrink"),
    }
    assert {item.gate.outcome for item in records if item.gate} == {"automatic", "asked"}


@pytest.mark.long
@pytest.mark.parametrize("name", MUTANTS)
def test_a_changed_option_is_reported(name: str, tmp_path: Path, records: list[LoopResult]) -> None:
    old, new, kind = MUTANTS[name]

    judgements = replay(tmp_path, old, new, records)

    assert kind in differing(judgements)
    assert "cannot tell" not in differing(judgements)


@pytest.mark.parametrize("name", REFACTORINGS)
def test_a_refactoring_of_options_raises_no_alarm(
    name: str, tmp_path: Path, records: list[LoopResult]
) -> None:
    old, new = REFACTORINGS[name]

    assert differing(replay(tmp_path, old, new, records)) == set()
