"""One item for one fault, for as long as it lasts, and what its preview says."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from boyd import Agent, Observation, Veto
from boyd.models import ActionResult, ApprovalItem, Autonomy, CallRequest, Proposal
from boyd.plugin import Action, Component, Observer, Orienter, Strategy
from boyd.testing import Lab
from kit import Recorder, agent, assessed, choice, chooses, person, plugin, seen

GATED = Autonomy(mode="approval-required")


class World:
    """A fault that comes and goes, and errors while looking."""

    def __init__(self) -> None:
        self.fault = True
        self.broken: set[str] = set()

    def fail(self, part: str) -> None:
        """Raise if *what* is broken."""
        if part in self.broken:
            raise RuntimeError(f"{part} is broken")

    def observer(self, name: str = "disk", **settings: Any) -> Observer:
        """Sees the fault."""

        def observe() -> list[Observation]:
            self.fail(name)
            return [seen(name, data={"full": self.fault})]

        return Observer(name=name, observe=observe, **settings)

    def orienter(self) -> Orienter:
        """Says that the disk is full while it is."""

        def orient() -> Any:
            self.fail("orienter")
            return assessed("the disk is full" if self.fault else "all is well")

        return Orienter(name="orients", orient=orient)

    def strategy(self, **settings: Any) -> Strategy:
        """Cleans up while the disk is full."""

        def applicable(situation: Any) -> bool:
            self.fail("strategy")
            return "full" in situation.summary

        settings = {"withdraw_when_clear": True, **settings}
        return Strategy(
            name="cleans", decide=lambda: choice(), applicable_when=applicable, **settings
        )


def gate_action(**settings: Any) -> Action:
    """An action that waits for a person."""
    return Recorder().action(autonomy=GATED, **settings)


def lab_for(world: World, *more: Component, **settings: Any) -> Lab:
    """A lab whose agent has asked to clean up a full disk."""
    parts = [world.observer(), world.orienter(), world.strategy(), *more, gate_action()]
    lab = Lab(agent(*parts, **settings))
    lab.run()
    assert len(lab.store.approvals.page(50).pending) == 1
    return lab


def pending(lab: Lab) -> list[ApprovalItem]:
    """The pending items."""
    return lab.store.approvals.page(50).pending


def resolutions_of(lab: Lab) -> list[tuple[str, str | None]]:
    """The resolved items: status and reason."""
    return [(item.status, item.note) for item in lab.store.approvals.page(50).history]


def test_a_lasting_fault_makes_one_item() -> None:
    world = World()
    lab = lab_for(world)
    for _ in range(29):
        lab.run()
    [item] = pending(lab)

    assert (item.seen, item.loop_iteration) == (30, 1)
    assert resolutions_of(lab) == []


def test_the_item_carries_the_last_summary_of_the_situation() -> None:
    words = {"now": "90 % full"}
    orienter = Orienter(name="o", orient=lambda: assessed(words["now"]))
    lab = Lab(agent(orienter, chooses(choice()), gate_action()))
    lab.run()
    words["now"] = "95 % full"
    lab.run()
    [item] = pending(lab)

    assert item.situation_summary == "95 % full"


def test_other_params_are_another_item_regardless_of_key_order() -> None:
    params: dict[str, Any] = {}
    strategy = Strategy(name="s", decide=lambda: choice(params=dict(params)))
    lab = Lab(agent(strategy, gate_action()))
    for wanted_params in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1}, {"a": "1"}):
        params.clear()
        params.update(wanted_params)
        lab.run()

    assert sorted(item.seen for item in pending(lab)) == [1, 1, 2]


def test_a_call_for_what_waits_already_joins_it() -> None:
    lab = lab_for(World())
    call_id = lab.launcher.call(
        CallRequest(kind="execute", action="p:do", actor=person("ann")), None
    )
    lab.deliver()
    record = lab.store.calls.get(call_id)
    [item] = pending(lab)

    assert record is not None
    assert record.result is not None
    assert record.result.waits_for == item.id
    assert (item.seen, item.requested_by) == (2, ["agent:test", "ann"])


def test_after_the_item_has_expired_there_is_a_new_one_even_before_anybody_purged() -> None:
    lab = lab_for(World())
    [first] = pending(lab)
    lab.client.zadd("boyd:{test}:approvals:pending", {first.id: 1})
    second = lab.store.approvals.enqueue(first, lab.engine.retention, "loop:9")

    assert second != first.id
    assert resolutions_of(lab) == [("expired", None)]


def test_when_the_fault_clears_the_item_is_withdrawn_with_the_reason() -> None:
    world = World()
    lab = lab_for(world)
    world.fault = False
    lab.run()
    [item] = lab.store.approvals.page(50).history

    assert pending(lab) == []
    assert (item.status, item.note, item.acted_by) == (
        "withdrawn",
        "The situation has cleared: all is well",
        "agent:test",
    )
    assert lab.store.approvals.watches() == {}


def test_a_strategy_that_now_says_there_is_nothing_to_do_has_cleared_too() -> None:
    decision = {"now": choice()}
    strategy = Strategy(name="s", decide=lambda: decision["now"], withdraw_when_clear=True)
    lab = Lab(agent(strategy, gate_action()))
    lab.run()
    decision["now"] = choice("no-op")
    lab.run()

    assert [status for status, _ in resolutions_of(lab)] == ["withdrawn"]


def test_without_the_flag_an_item_waits_although_the_fault_has_cleared() -> None:
    world = World()
    strategy = world.strategy(withdraw_when_clear=False)
    lab = Lab(agent(world.observer(), world.orienter(), strategy, gate_action()))
    lab.run()
    world.fault = False
    lab.run()

    assert len(pending(lab)) == 1


@pytest.mark.parametrize("part", ["disk", "orienter", "strategy"])
def test_an_iteration_in_which_something_failed_withdraws_nothing(part: str) -> None:
    world = World()
    lab = lab_for(world)
    world.fault = False
    world.broken.add(part)
    lab.run()
    assert len(pending(lab)) == 1

    world.broken.clear()
    lab.run()
    assert pending(lab) == []


def test_without_the_observer_that_saw_the_fault_nothing_is_withdrawn() -> None:
    """In continuous mode an observer with an interval sits iterations out."""
    world = World()
    observers = [world.observer(interval=3600), world.observer("other")]

    def orient(observations: list[Observation]) -> Any:
        full = any(o.source == "disk" and o.data["full"] for o in observations)
        return assessed("the disk is full" if full else "all is well")

    parts = [*observers, Orienter(name="o", orient=orient), world.strategy(), gate_action()]
    lab = Lab(agent(*parts, mode="continuous"))
    lab.run()
    assert len(pending(lab)) == 1
    lab.run()
    lab.run()
    assert len(pending(lab)) == 1

    world.fault = False
    lab.client.delete("boyd:{test}:observers:ran")
    lab.run()
    assert pending(lab) == []


def test_while_another_strategy_comes_first_nothing_is_withdrawn() -> None:
    world = World()
    urgent = {"now": False}
    first = Strategy(
        name="first", decide=lambda: choice("no-op"), applicable_when=lambda: urgent["now"]
    )
    parts = [world.observer(), world.orienter(), first, world.strategy(), gate_action()]
    lab = Lab(agent(*parts))
    lab.run()
    urgent["now"] = True
    lab.run()

    assert len(pending(lab)) == 1


@pytest.mark.parametrize("ending", ["veto", "failed"])
def test_a_veto_or_a_failed_iteration_withdraws_nothing(ending: str) -> None:
    stops = {"now": False}

    def on_decide() -> None:
        if stops["now"]:
            raise Veto("not now")

    def on_orient() -> None:
        if stops["now"] and ending == "failed":
            raise RuntimeError("a bug")

    strategy = chooses(choice(), withdraw_when_clear=True)
    hooks: dict[str, Any] = {"on_decide": on_decide, "on_orient": on_orient}
    lab = Lab(Agent("test", plugins=[plugin(strategy, gate_action(), **hooks)]))
    lab.run()
    stops["now"] = True
    lab.run()

    assert len(pending(lab)) == 1


@pytest.mark.parametrize("source", ["run", "intake"])
def test_a_fault_reported_once_from_outside_does_not_clear_by_itself(
    source: str,
) -> None:
    def applicable(situation: Any) -> bool:
        return "disk" in situation.summary

    def orient(observations: list[Observation]) -> Any:
        reports = [o for o in observations if o.source in ("alerts", "run:api")]
        return assessed("the disk is full" if reports else "nothing new")

    strategy = Strategy(
        name="s", decide=lambda: choice(), applicable_when=applicable, withdraw_when_clear=True
    )
    subject = agent(Orienter(name="o", orient=orient), strategy, gate_action(), mode="event-driven")
    lab = Lab(subject)
    if source == "run":
        lab.submit("the disk is full")
    else:
        lab.intake(seen("alerts", type="alert"))
    lab.deliver()
    assert len(pending(lab)) == 1
    lab.run()

    assert len(pending(lab)) == 1


def test_the_loop_does_not_withdraw_an_item_that_a_client_requested_too() -> None:
    world = World()
    lab = lab_for(world)
    request = CallRequest(kind="execute", action="p:do", actor=person("ann"))
    lab.launcher.call(request, None)
    lab.deliver()
    world.fault = False
    lab.run()

    assert [item.requested_by for item in pending(lab)] == [["agent:test", "ann"]]


def test_the_runs_that_wait_for_a_withdrawn_item_fail_with_it() -> None:
    world = World()
    lab = lab_for(world)
    run_id = lab.submit("look").run.id
    lab.deliver()
    world.fault = False
    lab.run()
    run = lab.store.runs.get(run_id)

    assert pending(lab) == []
    assert run is not None
    assert (run.status, run.reason) == ("failed", "the approval was withdrawn")


def test_an_approved_item_is_not_withdrawn() -> None:
    world = World()
    lab = lab_for(world)
    [item] = pending(lab)
    lab.resolver.answer(item.id, "approved", person("ann"))
    world.fault = False
    lab.run()
    lab.deliver()

    assert [status for status, _ in resolutions_of(lab)] == ["approved"]
    assert lab.store.approvals.watches() == {}


def test_a_withdrawn_item_that_is_asked_for_again_is_a_new_one() -> None:
    world = World()
    lab = lab_for(world)
    [first] = pending(lab)
    world.fault = False
    lab.run()
    world.fault = True
    lab.run()
    [second] = pending(lab)

    assert (first.id != second.id, second.seen) == (True, 1)


def test_the_dry_run_is_on_the_item_and_is_not_repeated_while_it_waits() -> None:
    dry_runs: list[Any] = []

    def dry_run(params: Any) -> str:
        dry_runs.append(params)
        return "would free 3 GB"

    lab = Lab(agent(chooses(choice(params={"size": 1})), gate_action(dry_run=dry_run)))
    for _ in range(5):
        lab.run()
    [item] = pending(lab)

    assert item.preview is not None
    assert (item.preview.success, item.preview.output, item.seen) == (True, "would free 3 GB", 5)
    assert dry_runs == [{"size": 1}]


def test_an_item_that_follows_an_expired_one_has_a_preview_too() -> None:
    lab = Lab(agent(gate_action(dry_run=lambda: "would do it")))
    request = CallRequest(kind="execute", action="p:do", actor=person("ann"))
    for _ in range(2):
        lab.launcher.call(request, None)
        lab.deliver()
        [item] = pending(lab)
        lab.client.zadd("boyd:{test}:approvals:pending", {item.id: 1})

    assert item.seen == 1
    assert item.preview is not None


def test_an_item_whose_dry_run_fails_waits_with_the_error() -> None:
    def dry_run() -> str:
        raise OSError("no route")

    lab = Lab(agent(chooses(choice()), gate_action(dry_run=dry_run)))
    lab.run()
    [item] = pending(lab)

    assert isinstance(item.preview, ActionResult)
    assert (item.preview.success, item.preview.error) == (False, "OSError: no route")


def test_an_action_with_invalid_params_is_not_proposed() -> None:
    class Params(BaseModel):
        size: int

    lab = Lab(agent(chooses(choice(params={"size": "big"})), gate_action(params=Params)))
    [result] = lab.run().action_results

    assert "Invalid params: size" in (result.error or "")
    assert pending(lab) == []


def test_a_crash_between_proposing_and_leaving_counts_once() -> None:
    lab = Lab(agent(chooses(choice()), gate_action()))
    lab.launcher.trigger("test")
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "act")
    [hint] = lab.dispatcher.hints
    entry = lab.store.iterations.enter(hint[1], hint[2], "act", "lost/1")
    assert entry is not None
    waiting = lab.engine.approvals
    execution = lab.store.executions.of_iteration(entry.iteration)
    first = lab.store.approvals.enqueue(_proposal(), lab.engine.retention, execution)
    lab.dispatcher.hints.clear()
    lab.client.zadd("boyd:{test}:due", {"phase": 1})
    lab.sweeper.sweep()
    lab.deliver()
    [item] = pending(lab)

    assert (item.id, item.seen) == (first, 1)
    assert waiting.approval_of(execution) == first


def _proposal() -> Proposal:
    decision = choice()
    return Proposal(decision=decision, action_id="p:do", params={}, loop_iteration=1)
