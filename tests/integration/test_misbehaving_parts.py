"""Parts that hang, die or take too long, in real workers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from boyd.models import ActionResult, Actor, CallRequest, JsonObject
from harness import Deployment, wait_until
from measuring import Measure

pytestmark = pytest.mark.real


@pytest.mark.long
def test_isolated_observers_run_in_processes_that_are_killed_in_time(
    deployment: Deployment, measure: Measure
) -> None:
    deployment.environment["BOYD_WORKER__HOST"] = "graz"
    worker = deployment.worker("a", "agents.awkward:isolated")
    trigger = deployment.launcher("isolated").trigger("test")
    result = deployment.ended("isolated", trigger.iteration)
    took = f"{result.duration / 1000:.1f} s"
    measure(4, f"an observer that hangs, with a time limit of 1.5 s: the iteration took {took}")
    errors = {error.id: error.error for error in result.observer_errors}
    pids = {o.source: o.data["pid"] for o in result.observations}

    assert {"isolated:hangs", "isolated:dies", "isolated:fails"} == set(errors)
    assert "took longer than 1.5 s" in errors["isolated:hangs"]
    assert "its process ended with status 3" in errors["isolated:dies"]
    assert "boom" in errors["isolated:fails"]
    assert worker == pids["usual"] != pids["well"]
    state = deployment.agent("isolated").state("isolated")
    assert trigger.iteration == state.get("seen")
    assert state.get("where") == ["graz", "graz"]


@pytest.mark.long
def test_an_observer_that_kills_its_worker_costs_only_itself(deployment: Deployment) -> None:
    for name in ("a", "b", "c", "d"):
        deployment.worker(name, "agents.awkward:deadly")
    trigger = deployment.launcher("deadly").trigger("test")
    result = deployment.ended("deadly", trigger.iteration, timeout=40)

    assert [o.source for o in result.observations] == ["lives"]
    assert [error.id for error in result.observer_errors] == ["deadly:kills"]
    assert "was lost while it ran" in result.observer_errors[0].error
    assert result.success
    # In a bundle, then alone: no more than two workers are lost to one observer.
    assert len(deployment.effects()) <= 2


def test_a_worker_with_too_many_hung_observers_restarts_itself(deployment: Deployment) -> None:
    # Three hang in each iteration; on a busy machine the first may run twice.
    deployment.environment["BOYD_WORKER__MAX_HUNG"] = "7"
    deployment.worker("a", "agents.awkward:hanging")
    launcher = deployment.launcher("hanging")
    first = deployment.ended("hanging", launcher.trigger("test").iteration)
    worker = deployment.processes["a"]
    for _ in range(2):
        trigger = launcher.trigger("test").iteration
        wait_until(lambda n=trigger: worker.poll() is not None or is_over(deployment, n))  # type: ignore[misc]
    wait_until(lambda: worker.poll() is not None)

    assert [observation.source for observation in first.observations] == ["lives"]
    assert len(first.observer_errors) == 3
    assert worker.returncode == 0
    assert re.search(r"\d+ observers or hooks hang, more than 7: restarting", deployment.log("a"))


def is_over(deployment: Deployment, number: int) -> bool:
    return deployment.agent("hanging").history.get(number) is not None


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_an_action_that_takes_too_long_is_reported(deployment: Deployment, pool: str) -> None:
    deployment.worker("a", "agents.awkward:slow", "-Q", "loop,observe")
    deployment.worker("b", "agents.awkward:slow", "-Q", "act", "--pool", pool)
    trigger = deployment.launcher("slow").trigger("test")
    result = deployment.ended("slow", trigger.iteration)
    outcome = result.action_results[0]

    assert outcome.error == "took longer than 0.5 s; it may have taken effect"
    assert outcome.unknown
    assert len(deployment.effects()) == 1, "it began once and did not end"


def test_a_prefork_worker_interrupts_the_action_and_goes_on(deployment: Deployment) -> None:
    deployment.worker("a", "agents.awkward:slow", "-Q", "loop,observe")
    deployment.worker(
        "b", "agents.awkward:slow", "-Q", "act", "--pool", "prefork", "--concurrency", "1"
    )
    launcher = deployment.launcher("slow")
    for _ in range(3):
        assert deployment.ended("slow", launcher.trigger("test").iteration).success

    assert [line.split(":")[0] for line in deployment.effects()] == ["begin"] * 3


def test_a_worker_in_which_a_plugin_broke_a_module_restarts_itself(deployment: Deployment) -> None:
    deployment.worker("a", "agents.awkward:breaking", "--concurrency", "1")
    calls = [order(deployment, name) for name in ("replace_json", *["work"] * 5)]
    worker = deployment.processes["a"]
    wait_until(lambda: worker.poll() is not None)

    assert worker.returncode == 0
    assert "5 steps in a row failed unexpectedly: restarting" in deployment.log("a")
    deployment.worker("b", "agents.awkward:breaking")
    results = [answer_to(deployment, call) for call in calls]
    assert all(result.success or result.unknown for result in results)


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_process_in_which_plugins_leave_too_many_files_open_restarts_itself(
    deployment: Deployment, pool: str
) -> None:
    deployment.worker("a", "agents.awkward:breaking", "--pool", pool, "--concurrency", "1")
    worker = deployment.processes["a"]
    leak = order(deployment, "leak_files")

    assert answer_to(deployment, leak).success
    wait_until(lambda: "files or connections open: restarting" in deployment.log("a"))
    if pool == "threads":
        wait_until(lambda: worker.poll() is not None)
        assert worker.returncode == 0
    else:
        assert answer_to(deployment, order(deployment, "work")).output == "done"
        assert worker.poll() is None


def order(deployment: Deployment, action: str) -> str:
    """Order an action of the agent that breaks its process; the id of the call."""
    name, ci = f"breaking:{action}", Actor(principal="ci")
    request = CallRequest(kind="execute", action=name, params={}, actor=ci)
    return deployment.launcher("breaking").call(request, None)


def answer_to(deployment: Deployment, call: str) -> ActionResult:
    """The result of a call, once it is there."""

    def answer() -> ActionResult | None:
        record = deployment.agent("breaking").calls.get(call)
        return record.result if record else None

    result: ActionResult = wait_until(answer)
    return result


LEFT = {
    "a thread": "threading.Thread(target=threading.Event().wait).start()",
    "an exit handler": "atexit.register(threading.Event().wait)",
}
END = """
import atexit, threading
import boyd_cli
boyd_cli.LINGER = 0.1
{}
boyd_cli.end(3)
"""


@pytest.mark.parametrize("left", LEFT.values(), ids=LEFT)
def test_a_process_ends_whatever_its_plugins_have_left_behind(left: str) -> None:
    command = [sys.executable, "-c", END.format(left)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert process.returncode == 3
    assert "ended without what plugins left behind" in process.stderr


CONDITIONAL = """
id = "conditional"
[autonomy."example:fan"]
when = "params.speed <= 50"
[[plugins]]
use = "example"
"""


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_workers_of_every_kind_evaluate_conditions(
    deployment: Deployment, pool: str, tmp_path: Path
) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(CONDITIONAL)
    deployment.worker("w", str(file), "--pool", pool)
    launcher, store = deployment.launcher("conditional"), deployment.agent("conditional")
    actor = Actor(principal="ci")

    def is_asked(speed: int) -> bool:
        params: JsonObject = {"speed": speed}
        request = CallRequest(kind="execute", action="example:fan", params=params, actor=actor)
        id = launcher.call(request, None)

        def answer() -> ActionResult | None:
            call = store.calls.get(id)
            return call.result if call else None

        return wait_until(answer, 20).waits_for is not None

    assert not is_asked(50)
    assert is_asked(51)
