"""An agent whose act workers are gone goes on observing."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from agents import parallel
from agents.lone import ALL, PHASES
from boyd.models import LoopResult
from boyd_cli import boyd
from harness import Deployment, wait_until
from measuring import Measure

pytestmark = pytest.mark.real

AGENTS = tuple(part for name in ALL for part in ("--agent", f"agents.lone:{name}"))
#: Agents that act at once, of which the first goes on acting while it is held.
HELD = ("lone-act", "lone-complete")
REST = "loop,observe,host,callback,think"
NO_ACT = "No live worker consumes queue 'act'; start one with -Q act"


def trigger_all(deployment: Deployment) -> dict[str, int]:
    """Start an iteration of every agent."""
    return {name: deployment.launcher(f"lone-{name}").trigger("test").iteration for name in ALL}


def results_of(deployment: Deployment, numbers: dict[str, int]) -> dict[str, LoopResult]:
    """The results of those iterations, once all have ended."""
    return {name: deployment.ended(f"lone-{name}", n) for name, n in numbers.items()}


def errors(results: dict[str, LoopResult]) -> dict[str, list[str | None]]:
    """The errors of the actions."""
    return {name: [r.error for r in result.action_results] for name, result in results.items()}


def test_without_an_act_worker_every_iteration_ends_at_once_and_says_which_to_start(
    deployment: Deployment,
) -> None:
    deployment.start("rest", "worker", *AGENTS, "-Q", REST)
    results = results_of(deployment, trigger_all(deployment))
    again = results_of(deployment, trigger_all(deployment))

    assert all(r.success and r.observations for r in (*results.values(), *again.values()))
    expected = {**{name: [NO_ACT] for name in PHASES}, "asks": ["Approval required"]}
    assert errors(results) == errors(again) == expected


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_losing_the_last_act_worker_in_any_phase_ends_the_iteration_and_the_next_observes(
    deployment: Deployment, number: signal.Signals, measure: Measure
) -> None:
    deployment.start("rest", "worker", *AGENTS, "-Q", REST)
    deployment.start("act", "worker", *AGENTS, "-Q", "act")
    hold = Path(f"{deployment.effects_file}.hold")
    hold.touch()
    numbers = trigger_all(deployment)
    # The one that is held in complete has acted by then; none of the others has.
    held = {f"{name}:lone-{name}:1" for name in PHASES} | {"decide:lone-asks:1"}
    wait_until(lambda: held <= {line.rpartition(":")[0] for line in deployment.effects()})
    deployment.kill("act", number)
    with measure.seconds(
        15, f"the last act worker lost ({number.name}): all iterations ended after"
    ):
        hold.unlink()
        results = results_of(deployment, numbers)
    following = results_of(deployment, trigger_all(deployment))
    messages = errors(results)

    assert messages.pop("complete") == [None]
    assert "Outcome unknown" in (messages.pop("act")[0] or "")
    assert messages.pop("asks") == ["Approval required"]
    assert messages == {name: [NO_ACT] for name in ("start", "observe", "orient", "decide")}
    assert all(result.observations for result in following.values())
    acted = [line for line in deployment.effects() if line.startswith("act:")]
    assert sorted(line.split(":")[1] for line in acted) == ["lone-act", "lone-complete"]


def test_an_action_that_sigterm_to_the_group_cuts_off_is_unknown(deployment: Deployment) -> None:
    """As systemd sends it by default: the parent drains, its children are ended."""
    deployment.start("rest", "worker", *AGENTS, "-Q", REST)
    deployment.start("act", "worker", *AGENTS, "-Q", "act", "--pool", "prefork")
    hold = Path(f"{deployment.effects_file}.hold")
    hold.touch()
    number = deployment.launcher("lone-act").trigger("test").iteration
    wait_until(lambda: any(line.startswith("act:") for line in deployment.effects()))
    os.killpg(deployment.processes["act"].pid, signal.SIGTERM)
    [result] = deployment.ended("lone-act", number).action_results
    hold.unlink()

    assert result.unknown
    assert "was lost while executing it" in str(result.error)
    assert sum(line.startswith("act:") for line in deployment.effects()) == 1


def start_idle_pool(deployment: Deployment) -> psutil.Process:
    """Start an act worker that keeps no process without work, and a worker for the rest."""
    deployment.start("rest", "worker", *AGENTS, "-Q", REST)
    deployment.environment["BOYD_WORKER__IDLE_TIMEOUT"] = "1"
    pool = ("--pool", "prefork", "--concurrency", "2")
    return psutil.Process(deployment.start("act", "worker", *AGENTS, "-Q", "act", *pool))


def acting(deployment: Deployment) -> dict[str, int]:
    """The agents that have begun to act, and the process of the last action of each."""
    lines = [line.split(":") for line in deployment.effects() if line.startswith("act:")]
    return {agent: int(pid) for _, agent, _, pid in lines}


def test_a_pool_with_an_idle_timeout_has_processes_only_for_actions(deployment: Deployment) -> None:
    pool = start_idle_pool(deployment)
    assert not pool.children()
    hold = Path(f"{deployment.effects_file}.hold")
    hold.touch()
    held = {name: deployment.launcher(name).trigger("test").iteration for name in HELD}
    wait_until(lambda: set(HELD) <= acting(deployment).keys())
    # The other one has acted, in the same process or in one that may have ended since.
    assert acting(deployment)["lone-act"] in {child.pid for child in pool.children()}
    hold.unlink()
    results = [deployment.ended(name, number) for name, number in held.items()]
    wait_until(lambda: not pool.children())
    again = deployment.launcher("lone-act").trigger("test").iteration

    assert all(result.action_results[0].success for result in results)
    assert deployment.ended("lone-act", again).action_results[0].success
    assert deployment.stop("act") == 0


def test_a_process_that_is_killed_in_an_idle_pool_costs_its_action_only(
    deployment: Deployment,
) -> None:
    pool = start_idle_pool(deployment)
    hold = Path(f"{deployment.effects_file}.hold")
    hold.touch()
    number = deployment.launcher("lone-act").trigger("test").iteration
    wait_until(lambda: "lone-act" in acting(deployment))
    os.kill(acting(deployment)["lone-act"], signal.SIGKILL)
    hold.unlink()
    result = deployment.ended("lone-act", number)
    again = deployment.launcher("lone-act").trigger("test").iteration

    assert result.action_results[0].unknown
    assert deployment.ended("lone-act", again).action_results[0].success
    wait_until(lambda: not pool.children())


def test_an_act_worker_that_wakes_up_late_is_refused_and_works_for_the_next(
    deployment: Deployment,
) -> None:
    deployment.start("rest", "worker", *AGENTS, "-Q", REST)
    deployment.start("act", "worker", *AGENTS, "-Q", "act")
    hold = Path(f"{deployment.effects_file}.hold")
    hold.touch()
    number = deployment.launcher("lone-act").trigger("test").iteration
    wait_until(lambda: any(line.startswith("act:") for line in deployment.effects()))
    deployment.kill("act", signal.SIGSTOP)
    hold.unlink()
    result = deployment.ended("lone-act", number)
    deployment.kill("act", signal.SIGCONT)
    serving = deployment.store.fleet.of("lone-act").serving
    wait_until(lambda: serving("act", fresh=True))
    again = deployment.launcher("lone-act").trigger("test").iteration

    assert result.action_results[0].unknown
    assert deployment.ended("lone-act", again).action_results[0].success
    assert deployment.agent("lone-act").history.get(number) == result


def test_an_iteration_is_abandoned_with_a_command_while_its_worker_acts(
    deployment: Deployment,
) -> None:
    deployment.start("all", "worker", *AGENTS)
    url = deployment.api("api")
    key = deployment.key("ann", "admin")["Authorization"].removeprefix("Bearer ")
    hold = Path(f"{deployment.effects_file}.hold")
    hold.touch()
    number = deployment.launcher("lone-act").trigger("test").iteration
    wait_until(lambda: any(line.startswith("act:") for line in deployment.effects()))
    environment = {"BOYD_URL": url, "BOYD_API_KEY": key, "BOYD_STATE_DIR": str(deployment.folder)}
    arguments = ["abandon", "--agent", "lone-act", "--reason", "it hangs"]
    outcome = CliRunner().invoke(boyd, arguments, env=environment)
    result = deployment.ended("lone-act", number)
    hold.unlink()
    again = deployment.launcher("lone-act").trigger("test").iteration

    assert outcome.exit_code == 0, outcome.output
    assert outcome.stdout == f"lone-act #1 has failed: {result.error}\n"
    assert (result.success, result.error) == (False, "abandoned: it hangs (by ann)")
    assert result.action_results[0].unknown
    assert deployment.ended("lone-act", again).action_results[0].success
    assert deployment.agent("lone-act").history.get(number) == result


@pytest.mark.long
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_an_action_may_compute_in_several_processes(deployment: Deployment, pool: str) -> None:
    deployment.worker("work", "agents.parallel:agent", "--pool", pool)
    number = deployment.launcher("parallel").trigger("test").iteration
    [result] = deployment.ended("parallel", number, timeout=90).action_results

    assert result.error is None
    assert isinstance(result.output, dict)
    assert result.output == {name: [2, 4, 6] for name in result.output}
    assert len(result.output) == 2 * len(parallel.METHODS)
