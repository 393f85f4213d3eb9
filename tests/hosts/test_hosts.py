"""Workers on several hosts: what runs where, slow lines, and hosts that are cut off."""

from __future__ import annotations

from pathlib import Path

import pytest

from boyd.models import ActionResult, LoopResult
from harness import wait_until
from hosts.conftest import Hosts
from measuring import Measure

pytestmark = [pytest.mark.real, pytest.mark.slow]


def effects(hosts: Hosts, name: str) -> list[str]:
    """The lines of one kind that were left."""
    return [line for line in hosts.effects() if line.startswith(f"{name}:")]


def hold(hosts: Hosts, name: str) -> Path:
    """Keep a part waiting, once it has left its line, until the file is removed."""
    file = Path(f"{hosts.effects_file}.hold.{name}")
    file.touch()
    return file


def outcome(hosts: Hosts, agent: str, iteration: int, timeout: float = 30.0) -> ActionResult:
    """The only action result of an iteration."""
    [result] = hosts.ended(agent, iteration, timeout).action_results
    return result


@pytest.mark.long
def test_an_observer_for_every_host_sees_each_of_them(hosts: Hosts) -> None:
    for name in ("vienna", "graz", "linz"):
        hosts.worker_on(hosts.host(name), "agents.spread:spread")

    def all_three() -> LoopResult | None:
        trigger = hosts.launcher("spread").trigger("test")
        iteration = hosts.ended("spread", trigger.iteration)
        return iteration if len(iteration.observations) == 3 else None

    # It takes a few seconds until everybody plans with a host that has just come.
    result: LoopResult = wait_until(all_three)

    assert sorted(str(o.data["host"]) for o in result.observations) == ["graz", "linz", "vienna"]
    addresses = {str(o.data["address"]) for o in result.observations}
    assert addresses == {host.address for host in hosts.network.hosts.values()} - {
        hosts.redis_host.address
    }


@pytest.mark.long
def test_an_action_runs_on_the_host_that_its_queue_names(hosts: Hosts) -> None:
    for name in ("vienna", "graz"):
        queues = "loop,observe,host" + (",act.graz" if name == "graz" else ",act")
        hosts.worker_on(hosts.host(name), "agents.spread:spread", "-Q", queues)
    trigger = hosts.launcher("spread").trigger("test")
    result = outcome(hosts, "spread", trigger.iteration)

    assert (result.success, result.output) == (True, "graz")


@pytest.mark.long
def test_a_host_on_a_slow_line_takes_part(hosts: Hosts) -> None:
    """A tenth of a second each way; how soon the others plan with a new host is another matter."""
    hosts.worker_on(hosts.host("near"), "agents.spread:spread", "-Q", "loop,observe,act,host")
    hosts.worker_on(hosts.host("far"), "agents.spread:spread", "-Q", "host,act.graz", slow=0.1)

    def both() -> LoopResult | None:
        trigger = hosts.launcher("spread").trigger("test")
        result = hosts.ended("spread", trigger.iteration)
        return result if len(result.observations) == 2 else None

    result: LoopResult = wait_until(both)

    assert sorted(str(o.data["host"]) for o in result.observations) == ["far", "near"]
    assert [done.output for done in result.action_results] == ["far"]
    assert result.observer_errors == []


@pytest.mark.long
def test_a_host_that_is_cut_off_while_acting_does_not_act_again(
    hosts: Hosts, measure: Measure
) -> None:
    cut = hosts.host("cut")
    hosts.worker_on(cut, "agents.traced:traced", "-Q", "act")
    hosts.worker_on(hosts.host("other"), "agents.traced:traced", "-Q", "loop,observe")
    held = hold(hosts, "act")
    trigger = hosts.launcher("traced").trigger("test")
    wait_until(lambda: effects(hosts, "act"))
    with measure.seconds(9, "a host cut off while it acts: the iteration has ended after"):
        cut.cut()
        hosts.worker_on(hosts.host("spare"), "agents.traced:traced", "-Q", "act")
        lost = outcome(hosts, "traced", trigger.iteration)
    held.unlink()
    # The healed host reports what it did; its late word is kept, and changes nothing.
    ledger = hosts.store.agent("traced").executions
    key = f"boyd:{{traced}}:execution:{ledger.whole(f'loop:{trigger.iteration}')}"
    with measure.seconds(9, "its cable mended: its late word has come after"):
        cut.mend()
        wait_until(lambda: hosts.store.client.hexists(key, "lateResult"), 40)
    again = outcome(hosts, "traced", trigger.iteration)

    assert lost.unknown
    assert "was lost while executing it" in (lost.error or "")
    assert lost == again
    assert len(effects(hosts, "act")) == 1


@pytest.mark.long
@pytest.mark.parametrize("phase", ["one", "orient", "decide", "complete"])
def test_a_host_that_is_cut_off_in_another_phase_costs_only_time(hosts: Hosts, phase: str) -> None:
    cut = hosts.host("cut")
    hosts.worker_on(cut, "agents.traced:traced")
    held = hold(hosts, phase)
    trigger = hosts.launcher("traced").trigger("test")
    wait_until(lambda: effects(hosts, phase))
    cut.cut()
    hosts.worker_on(hosts.host("other"), "agents.traced:traced")
    wait_until(lambda: len(effects(hosts, phase)) > 1)
    held.unlink()
    result = hosts.ended("traced", trigger.iteration)
    cut.mend()
    healed = hosts.launcher("traced").trigger("test")
    hosts.ended("traced", healed.iteration)

    assert result.success
    assert len(effects(hosts, "act")) == 2
    assert result == hosts.ended("traced", trigger.iteration)


@pytest.mark.long
def test_a_worker_whose_host_was_away_takes_part_again_without_a_restart(hosts: Hosts) -> None:
    only = hosts.host("only")
    hosts.worker_on(only, "agents.traced:traced")
    pid = hosts.processes["only"].pid
    only.cut()
    wait_until(lambda: not hosts.store.fleet.workers(), 20)
    trigger = hosts.launcher("traced").trigger("test")
    only.mend()
    result = hosts.ended("traced", trigger.iteration, 60)

    assert result.success
    assert hosts.processes["only"].pid == pid
    assert hosts.processes["only"].poll() is None
