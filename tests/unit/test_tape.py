"""The record of an iteration has everything its decision depended on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import SecretStr

import kit
from boyd import Agent, LoopResult, Plugin
from boyd.agent import agent_from_file
from boyd.models import Actor, AgentBuild, digest_of
from boyd.plugins.example import Example
from boyd.runtime.ending import Abandoner
from boyd.store.keys import Keys
from boyd.testing import Lab
from boyd.version import VERSION
from kit import Recorder, agent, choice, chooses, overdue, plugin, reads, seen, sees

KEYS = Keys("test")


def first(lab: Lab) -> LoopResult:
    """The record of iteration 1, as clients read it."""
    result = lab.store.history.get(1)
    assert result is not None
    return LoopResult.from_json(result.to_json())


def acting(*more: Any) -> Lab:
    """A lab with an agent that executes an action in each iteration."""
    parts = [sees("o", seen()), reads("r", "x"), chooses(choice()), Recorder().action()]
    return Lab(agent(*parts, *more))


# Who ran what, and when


def test_every_phase_has_its_worker_its_start_and_its_duration() -> None:
    runs = acting().run().phase_runs

    assert [run.phase for run in runs] == [
        *("start", "observe", "orient", "decide", "act", "complete"),
    ]
    assert {(run.worker, run.attempt, run.lost) for run in runs if run.phase != "observe"} == {
        ("lab", 1, False)
    }
    offsets = [run.offset for run in runs]
    assert offsets == sorted(offsets)
    assert all(run.duration >= 0 for run in runs)


def test_every_run_of_an_observer_has_its_batch_attempt_and_start() -> None:
    (run,) = acting().run().observer_runs

    assert (run.batch, run.attempt) == (1, 1)
    assert run.offset is not None
    assert run.offset >= 0


def test_an_attempt_whose_worker_was_lost_is_recorded_once_with_the_worker() -> None:
    lab = acting()
    lab.launcher.trigger("test")
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "decide")
    for epoch in (1, 2):
        lab.dispatcher.hints.clear()
        assert lab.store.iterations.enter(1, epoch, "decide", f"far.away.{epoch}.abcd/1")
        lab.client.zadd(KEYS.due, {"phase": 1})
        lab.sweeper.sweep()
    lab.deliver()
    runs = [run for run in first(lab).phase_runs if run.phase == "decide"]

    assert [(run.attempt, run.lost, run.host) for run in runs] == [
        *((1, True, "far.away"), (2, True, "far.away"), (3, False, None)),
    ]
    assert runs[0].worker == "far.away.1.abcd"


def test_a_batch_whose_worker_was_lost_is_recorded_once_and_its_observers_have_attempt_2() -> None:
    lab = Lab(agent(*[sees(f"o{i}", seen()) for i in range(2)]))
    lab.launcher.trigger("test")
    lab.step()
    lab.dispatcher.hints.clear()
    assert lab.store.batches.enter(1, 1, 1, "h.1.abcd/1")
    overdue(lab, "batch:1")
    result = first(lab)

    assert [(run.batch, run.attempt, run.host) for run in result.phase_runs if run.lost] == [
        (1, 1, "h")
    ]
    assert [(run.batch, run.attempt) for run in result.observer_runs] == [(2, 2), (3, 2)]


def test_a_batch_that_is_given_up_is_recorded_with_each_lost_worker() -> None:
    lab = Lab(agent(sees("bad")))
    lab.launcher.trigger("test")
    lab.step()
    for batch, attempt in ((1, 1), (2, 2)):
        lab.dispatcher.hints.clear()
        assert lab.store.batches.enter(1, batch, attempt, "h.1.abcd/1")
        lab.client.zadd(KEYS.due, {f"batch:{batch}": 1})
        lab.sweeper.sweep()
    lab.deliver()
    result = first(lab)

    assert [(run.batch, run.attempt) for run in result.phase_runs if run.lost] == [(1, 1), (2, 2)]
    assert [problem.id for problem in result.observer_errors] == ["p:bad"]


def test_an_attempt_that_somebody_abandoned_does_not_count() -> None:
    lab = acting()
    lab.launcher.trigger("test")
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "orient")
    assert lab.store.iterations.enter_orient(1, 1, "h.1.abcd/1")
    Abandoner(lab.store, lab.dispatcher, lab.engine.retention).abandon("stop", Actor(principal="a"))
    runs = first(lab).phase_runs

    assert [(run.phase, run.lost) for run in runs] == [
        *(("start", False), ("observe", False), ("orient", True)),
    ]


def test_a_record_of_an_earlier_release_is_read_without_what_it_lacks() -> None:
    lab = acting()
    lab.run()
    lab.client.hdel(KEYS.archived(1), "steps", "at:1")
    result = first(lab)

    assert result.phase_runs == []
    assert [(run.offset, run.batch, run.attempt) for run in result.observer_runs] == [
        (None, 1, None)
    ]
    assert result.phases["orient"] >= 0


# The agent and its plugins


class Dated(Plugin):
    """A plugin that says its version."""

    id = "dated"
    version = "2026.11"


def test_the_agents_settings_and_plugins_are_recorded_with_their_versions() -> None:
    lab = Lab(Agent("test", plugins=[Dated(), Example(), plugin()], loop_interval=7))
    (build,) = lab.run().builds
    own = digest_of(Path(kit.__file__).read_text())

    assert build == lab.agent.build
    assert (build.settings, build.boyd) == (lab.agent.fingerprint, VERSION)
    assert [one.to_wire() for one in build.plugins] == [
        {"id": "situation-priority", "version": VERSION},
        {"id": "dated", "version": "2026.11"},
        {"id": "example", "version": VERSION},
        {"id": "p", "digest": own},
    ]


def test_a_local_plugin_is_recorded_with_the_digest_of_its_file(tmp_path: Path) -> None:
    text = 'from boyd import Plugin\n\n\nclass Own(Plugin):\n    id = "own-{}"\n'
    file = 'id = "a"\nplugins_dir = "."\n[[plugins]]\nuse = "own-{}"\n'
    found = []
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(text.format(name))
        (tmp_path / f"{name}.toml").write_text(file.format(name))
        found.append(agent_from_file(tmp_path / f"{name}.toml").build)

    assert found[0].plugins[-1].digest == digest_of(text.format("one"))
    assert found[0].plugins[-1].digest != found[1].plugins[-1].digest
    assert found[0].id != found[1].id


def test_a_build_changes_with_each_setting_and_option_and_holds_no_secret() -> None:
    class Keyed(Plugin):
        id = "keyed"

        class Options(Plugin.Options):
            password: SecretStr
            level: int = 1

    def build(level: int, **settings: Any) -> AgentBuild:
        return Agent("a", plugins=[Keyed(password="hunter22", level=level)], **settings).build

    assert build(1) == build(1)
    assert len({build(1).id, build(2).id, build(1, loop_interval=7).id}) == 3
    assert "hunter22" not in build(1).to_json()


def test_a_phase_and_an_observer_of_another_build_are_recorded_with_it() -> None:
    lab = acting()
    other = Lab(agent(sees("o", seen()), loop_interval=7), client=lab.client)
    lab.launcher.trigger("test")
    lab.step()
    other.steps.observe(*lab.dispatcher.hints.popleft()[1:])
    other.steps.orient(1, 1)
    lab.steps.decide(1, 1)
    lab.dispatcher.hints.append(("act", 1, 1))
    lab.deliver()
    result = first(lab)

    assert result.builds == [lab.agent.build, other.agent.build]
    assert {run.phase: run.build for run in result.phase_runs if run.build} == {
        "orient": other.agent.build.id
    }
    assert [run.build for run in result.observer_runs] == [other.agent.build.id]
