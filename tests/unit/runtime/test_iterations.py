"""Starting iterations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from boyd import Action, Agent, BoydError, ConfigError, Observation, Plugin
from boyd.agent import agent_from_file
from boyd.errors import AgentPaused, QueueFull
from boyd.models import Autonomy, RunRequest, utc_now
from boyd.runtime import IterationSteps
from boyd.store import IntakeLimits, Retention, Slot
from boyd.store.keys import Keys
from boyd.testing import Lab
from harness import wait_until
from kit import Recorder, agent, choice, chooses, plugin, reads, seen, sees, slot_around


def test_an_agent_has_these_defaults() -> None:
    settings = Agent("a").settings

    assert (
        settings.mode,
        settings.loop_interval,
        settings.approvals.ttl,
        settings.approvals.auto_expire,
        settings.history.max_count,
    ) == ("manual", 60.0, 3600.0, True, 500)


def test_a_file_and_python_give_the_same_agent(tmp_path: Any) -> None:
    path = tmp_path / "a.toml"
    path.write_text('id = "a"\nmode = "continuous"\n[[plugins]]\nuse = "example"\n')
    from boyd.plugins.example import Example

    assert Agent("a", mode="continuous", plugins=[Example()]).fingerprint == (
        agent_from_file(path).fingerprint
    )


def test_an_agent_with_other_code_of_a_plugin_is_another_one() -> None:
    class Old(Plugin):
        id = "shop"
        version = "1"

    class New(Old):
        version = "2"

    assert Agent("a", plugins=[Old()]).fingerprint != Agent("a", plugins=[New()]).fingerprint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('id = "a"\nloop_intervall = 3\n', "did you mean 'loop_interval'?"),
        ('id = "A B"\n', "id: it must have 1 to 63 lower-case letters, digits"),
        ('id = "a"\nmode = "sometimes"\n', "mode: Input should be 'manual'"),
        (
            'id = "a"\nloop_interval = 0\n',
            "loop_interval: Input should be greater than or equal to 0.05",
        ),
        ('id = "a"\n[[plugins]]\nuse = "exampel"\n', "did you mean 'example'?"),
        ('id = "a"\n[[plugins]]\nuse = "example"\noptions = {x = 1}\n', "x: is not known"),
        ('id = "a"\n[[plugins]]\nuse = "no.such:Thing"\n', "cannot import 'no.such'"),
        ('id = "a"\nplugins_dir = "nowhere"\n', "plugins_dir: no such folder"),
        ("id = a\n", "not valid TOML"),
        ("", "id: Field required"),
    ],
)
def test_a_wrong_agent_file_says_what_is_wrong(tmp_path: Any, text: str, message: str) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    with pytest.raises(BoydError) as caught:
        agent_from_file(path)

    assert message in str(caught.value)


def test_a_missing_agent_file_is_one_clear_line(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        agent_from_file(tmp_path / "none.toml")


def _phases_sent(lab: Lab) -> list[str]:
    """Run an iteration, and return the phases of which there were messages."""
    lab.launcher.trigger("test")
    sent = []
    while lab.dispatcher.hints:
        sent.append(lab.dispatcher.hints[0][0])
        lab.step()
    return sent


@pytest.mark.parametrize(
    ("consumed", "sent"),
    [
        ({"loop", "observe", "act"}, ["start"]),
        ({"loop", "act"}, ["start", "observe"]),
        ({"loop", "observe"}, ["start", "act"]),
        ({"act"}, ["start", "observe", "orient", "decide", "complete"]),
        (set(), ["start", "observe", "orient", "decide", "act", "complete"]),
    ],
)
def test_a_worker_goes_on_without_messages_to_queues_that_it_consumes(
    consumed: set[str], sent: list[str]
) -> None:
    does = Recorder()
    lab = Lab(agent(sees("o", seen()), chooses(choice()), does.action()))
    lab.engine.settings = replace(lab.engine.settings, may_take=consumed.__contains__)
    lab.steps = IterationSteps(lab.engine)

    assert _phases_sent(lab) == sent
    assert len(does.calls) == 1


def test_a_worker_that_drains_leaves_the_next_step_to_others() -> None:
    does = Recorder()
    lab = Lab(agent(sees("o", seen()), chooses(choice()), does.action()))
    # The worker is told to stop while it decides.
    answers = iter([True, True, True, False])
    lab.engine.settings = replace(lab.engine.settings, may_take=lambda _: next(answers, False))
    lab.steps = IterationSteps(lab.engine)

    assert _phases_sent(lab) == ["start", "act", "complete"]
    assert len(does.calls) == 1


def test_a_worker_that_gets_a_stop_signal_as_it_goes_on_runs_that_one_step() -> None:
    does = Recorder()
    lab = Lab(agent(sees("o", seen()), chooses(choice()), does.action()))
    stops: list[bool] = []

    def may_take(queue: str) -> bool:
        # The signal comes between the answer and the script that leaves decide and enters act.
        if queue != "act":
            return not stops
        stops.append(True)
        return True

    lab.engine.settings = replace(lab.engine.settings, may_take=may_take)
    lab.steps = IterationSteps(lab.engine)

    assert _phases_sent(lab) == ["start", "complete"]
    assert len(does.calls) == 1


def test_a_worker_that_could_take_them_leaves_several_batches_to_all() -> None:
    lab = Lab(agent(sees("o", seen()), sees("p", seen())))
    lab.engine.settings = replace(
        lab.engine.settings, bundle_size=1, may_take={"loop", "observe"}.__contains__
    )
    lab.steps = IterationSteps(lab.engine)

    assert _phases_sent(lab) == ["start", "observe", "observe"]


def test_a_message_does_not_enter_the_phase_that_a_worker_has_gone_on_with() -> None:
    entered: list[bool] = []

    def execute() -> str:
        entered.append(lab.store.iterations.enter(1, 1, "act", "another/1") is not None)
        return "done"

    lab = Lab(agent(sees("o", seen()), chooses(choice()), Action(name="do", execute=execute)))
    lab.engine.settings = replace(lab.engine.settings, may_take=lambda _: True)
    lab.steps = IterationSteps(lab.engine)
    result = lab.run()

    assert entered == [False]
    assert result.success
    phases = [run.phase for run in result.phase_runs]
    assert phases == ["start", "observe", "orient", "decide", "act", "complete"]


def test_agents_of_one_deployment_do_not_notice_each_other() -> None:
    lab = Lab(agent(sees("o", seen("one"))))
    two = Lab(Agent("other", plugins=[plugin(sees("o", seen("two")))]), client=lab.client)
    lab.run()
    lab.run()
    result = two.run()

    assert (result.iteration, [o.source for o in result.observations]) == (1, ["two"])
    assert lab.store.loop_control.status().iteration == 2


@pytest.mark.parametrize(
    ("mode", "begins"), [("manual", 0), ("event-driven", 1), ("continuous", 0)]
)
def test_an_intake_event_wakes_only_an_event_driven_agent(mode: Any, begins: int) -> None:
    lab = Lab(agent(mode=mode))

    assert begins == lab.intake(seen("outside"))


def test_an_intake_without_room_for_all_observations_accepts_none() -> None:
    lab = Lab(agent())
    lab.intake(seen("a"))
    with pytest.raises(QueueFull, match="none of these were accepted"):
        lab.launcher.intake([seen("b"), seen("c")], limits=IntakeLimits(observations=2))

    assert [observation.source for observation in lab.run().observations] == ["a"]


@pytest.mark.parametrize(
    ("mode", "begins"), [("manual", 1), ("event-driven", 1), ("continuous", 0)]
)
def test_a_run_starts_an_iteration_unless_the_agent_ticks(mode: Any, begins: int) -> None:
    assert begins == Lab(agent(mode=mode)).submit("look").iteration


@pytest.mark.parametrize("mode", ["manual", "event-driven", "continuous"])
def test_a_trigger_is_accepted_in_every_mode(mode: Any) -> None:
    assert Lab(agent(mode=mode)).run().success


def test_intake_events_are_observed_once() -> None:
    lab = Lab(agent())
    lab.intake(seen("a"), seen("b"))
    first, second = lab.run(), lab.run()

    assert (
        [o.source for o in first.observations],
        [o.source for o in second.observations],
    ) == (["a", "b"], [])


@pytest.mark.parametrize(
    ("sent", "observed"),
    [
        ("watch/load", "intake:watch/load"),
        ("watch:load", "intake:watch:load"),
        ("watch", "intake:watch"),
        ("adds/load", "intake:adds/load"),
        ("watch-2/load", "watch-2/load"),
        ("judge/load", "judge/load"),
        ("other/watch", "other/watch"),
    ],
)
def test_nobody_who_sends_observations_speaks_for_a_plugin_that_observes(
    sent: str, observed: str
) -> None:
    plugins = [
        plugin(sees("load"), id="watch"),
        plugin(id="adds", on_observe=lambda observations: None),
        plugin(reads("judge"), id="judge"),
    ]
    lab = Lab(Agent("a", plugins=plugins))
    lab.intake(seen(sent))

    assert [item.source for item in lab.run().observations] == [observed]


def test_a_trigger_during_an_iteration_joins_it() -> None:
    lab = Lab(agent())
    first = lab.launcher.trigger("one")
    second = lab.launcher.trigger("two")
    lab.deliver()

    assert (first.outcome, second.outcome) == ("started", "joined")
    assert first.iteration == second.iteration
    assert len(lab.store.history.results()) == 1


@pytest.mark.parametrize("step", range(5))
def test_a_run_at_any_moment_is_looked_into_without_further_input(step: int) -> None:
    """Before the observe phase has closed it joins; after, exactly one follow-up starts."""
    lab = Lab(agent(sees("o", seen()), chooses(choice()), Recorder().action()))
    lab.launcher.trigger("test")
    for _ in range(step):
        lab.step()
    run_id = lab.submit("look").run.id
    lab.deliver()
    run = lab.store.runs.get(run_id)

    assert run is not None
    assert run.status == "completed"
    assert (2 if step > 2 else 1) == len(lab.store.history.results())
    assert lab.store.loop_control.status().phase == "idle"


def test_many_runs_during_an_iteration_make_one_follow_up() -> None:
    lab = Lab(agent(sees("o", seen())))
    lab.launcher.trigger("test")
    for _ in range(4):
        lab.step()
    for number in range(5):
        lab.submit(f"run {number}")
    lab.deliver()
    follow_up = lab.store.history.get(2)

    assert follow_up is not None
    assert (follow_up.trigger, len(follow_up.runs)) == ("follow-up", 5)
    assert lab.store.history.get(3) is None


def slot(lab: Lab, ahead: int = 0) -> Slot:
    """The slot of now, or one *ahead* of it."""
    now = slot_around(lab.client.time()[0])
    return Slot(now.begins + ahead * now.length, now.length)


def test_a_slot_starts_at_most_one_iteration() -> None:
    lab = Lab(agent(mode="continuous"))
    now, later = slot(lab), slot(lab, 1)
    first = lab.launcher.tick(now)
    lab.deliver()
    again = lab.launcher.tick(now)
    following = lab.launcher.tick(later)

    assert [trigger.outcome for trigger in (first, again, following)] == [
        "started",
        "duplicate",
        "started",
    ]


def test_a_slot_that_is_over_is_skipped() -> None:
    lab = Lab(agent(mode="continuous"))

    assert lab.launcher.tick(slot(lab, -1)).outcome == "late"
    assert lab.launcher.tick(slot(lab)).outcome == "started"


def test_a_clock_that_stepped_back_does_not_stop_the_ticks() -> None:
    lab = Lab(agent(mode="continuous"))
    lab.client.hset("boyd:{test}:loop", "slot", slot(lab, 60).begins)

    assert lab.launcher.tick(slot(lab)).new


def test_a_paused_agent_ignores_ticks_and_refuses_triggers() -> None:
    lab = Lab(agent(mode="continuous"))
    lab.store.loop_control.pause("maintenance (by ann)")

    assert not lab.launcher.tick(slot(lab)).new
    with pytest.raises(AgentPaused, match=r"maintenance \(by ann\)"):
        lab.launcher.trigger("test")


def test_a_second_pause_replaces_the_reason_and_the_audit_has_both() -> None:
    lab = Lab(agent())
    for reason in ("maintenance (by ann)", "migration (by bob)"):
        lab.store.loop_control.pause(reason)

    assert lab.store.loop_control.status().paused == "migration (by bob)"
    changes = [fields for _, fields in lab.client.xrange("boyd:{test}:audit:open")]
    assert [change.get("note") for change in changes] == [
        "maintenance (by ann)",
        "migration (by bob)",
    ]


def test_work_that_came_during_a_pause_starts_an_iteration_at_resume() -> None:
    lab = Lab(agent())
    lab.store.loop_control.pause("maintenance")
    run_id = lab.submit("look").run.id
    lab.deliver()
    assert lab.store.history.results() == []

    lab.launcher.resume()
    lab.deliver()
    run = lab.store.runs.get(run_id)

    assert run is not None
    assert run.status == "completed"


def test_iterations_are_numbered_and_the_phase_is_visible() -> None:
    lab = Lab(agent(sees("o", seen()), chooses(choice()), Recorder().action()))
    lab.launcher.trigger("test")
    phases = [lab.store.loop_control.status().phase]
    while lab.dispatcher.hints:
        lab.step()
        phases.append(lab.store.loop_control.status().phase)

    assert phases == ["start", "observe", "orient", "decide", "act", "complete", "idle"]
    assert [lab.store.loop_control.status().iteration, lab.run().iteration] == [1, 2]


def test_expired_approvals_are_history_before_the_phases() -> None:
    action = Recorder().action(autonomy=Autonomy(mode="human-only"))
    lab = Lab(agent(chooses(choice()), action))
    lab.run()
    item = lab.store.approvals.page(50).pending[0]
    lab.client.zadd("boyd:{test}:approvals:pending", {item.id: 1})
    lab.launcher.trigger("test")
    lab.step()
    queue = lab.store.approvals.page(50)

    assert (queue.pending, [i.status for i in queue.history]) == ([], ["expired"])


@pytest.mark.parametrize("approvals", [{"auto_expire": False}, {"ttl": 0}])
def test_without_auto_expiry_approvals_wait_for_ever(approvals: Any) -> None:
    action = Recorder().action(autonomy=Autonomy(mode="human-only"))
    lab = Lab(agent(chooses(choice()), action, approvals=approvals))
    lab.run()

    assert [i.expires_at for i in lab.store.approvals.page(50).pending] == [None]
    assert lab.store.approvals.expire(Retention()) == []


def test_loop_start_hooks_run_first_in_plugin_order() -> None:
    order: list[str] = []

    def observe() -> list[Observation]:
        order.append("observer")
        return []

    from boyd.plugin import Observer

    plugins = [
        plugin(Observer(name="o", observe=observe), on_loop_start=lambda: order.append("a")),
        plugin(id="q", on_loop_start=lambda: order.append("b")),
    ]
    Lab(Agent("test", plugins=plugins)).run()

    assert order == ["a", "b", "observer"]


def test_a_run_request_that_is_wrong_names_the_field() -> None:
    from pydantic import ValidationError

    with pytest.raises(ValidationError, match="title"):
        RunRequest(title="", description="x")
    with pytest.raises(ValidationError, match="priority"):
        RunRequest(title="x", description="x", priority="urgent")  # type: ignore[arg-type]


def test_ids_are_never_used_twice_though_numbers_begin_again() -> None:
    recorder = Recorder()
    lab = Lab(agent(chooses(choice()), recorder.action()))
    first = lab.run()
    lab.client.flushall()
    lab.whole.fleet.register(lab.engine.entry())
    wait_until(lambda: (utc_now() - first.ended_at).total_seconds() > 0.001)
    second = lab.run()

    assert (first.iteration, second.iteration) == (1, 1)
    assert first.id != second.id
    assert len(recorder.calls) == 2


def test_an_iteration_goes_on_counting_where_only_the_counter_was_lost() -> None:
    recorder = Recorder()
    lab = Lab(agent(chooses(choice()), recorder.action()))
    results = [lab.run() for _ in range(3)]
    lab.client.delete(Keys("test").loop)
    again = lab.run()

    assert again.iteration == 4
    assert [lab.store.history.get(r.iteration) for r in results] == results
    assert again.action_results[0].success
    assert len(recorder.calls) == 4


def test_ids_change_with_the_server_that_may_have_lost_what_came_last() -> None:
    lab = Lab(agent(chooses(choice()), Recorder().action()))
    first = lab.run()
    lab.client.hset(Keys("test").loop, "server", "another")
    wait_until(lambda: (utc_now() - first.ended_at).total_seconds() > 0.001)
    second = lab.run()
    third = lab.run()

    lines = [result.id.partition(".")[2] for result in (first, second, third)]
    assert [r.iteration for r in (first, second, third)] == [1, 2, 3]
    assert lines[0] != lines[1] == lines[2]
