"""The commands, against a real Redis: what they print, change and return."""

from __future__ import annotations

import json
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from boyd import Agent, Context, Observation
from boyd.embedded.state_folder import RunningDeployment, publish_runtime, state_lock
from boyd.errors import ApiUnavailable, ConfigError, UnknownAgent
from boyd.models import (
    ActionResult,
    Autonomy,
    DecisionTrace,
    EffectVerdict,
    LoopResult,
    NotDue,
    Problem,
    Refusal,
    Situation,
    no_op,
    utc_now,
)
from boyd.phases import decide
from boyd.plugin import Observer, Orienter, Strategy
from boyd.store import Store, WorkerInfo, mask_url
from boyd.testing import Lab
from boyd.text.version import VERSION
from boyd_cli import boyd
from boyd_cli.commands import control_commands
from boyd_cli.output import duration, seconds
from boyd_cli.views.iteration_view import iteration_line
from cli_kit import (
    PATIENCE,
    Cli,
    Command,
    announce,
    beside,
    lab_of,
    new_key,
    read_until,
    serving,
    working,
)
from harness import Deployment, free_port
from kit import (
    Recorder,
    agent,
    assessed,
    choice,
    chooses,
    fails,
    overdue,
    plugin,
    reads,
    seen,
    sees,
)

pytestmark = pytest.mark.real


def beats(store: Store, **fields: Any) -> None:
    """Announce a process."""
    defaults: dict[str, Any] = {
        "name": "b1",
        "role": "beat",
        "host": "here",
        "pid": 1,
        "queues": [],
        "agents": ["test"],
        "version": VERSION,
        "started_at": utc_now(),
    }
    store.fleet.beat(WorkerInfo(**{**defaults, **fields}))


@pytest.fixture
def cli(redis_url: str, tmp_path: Path) -> Iterator[Cli]:
    """The commands, with an API over an empty Redis and a key of `ann`'s."""
    key = new_key(redis_url, "ann", "admin", person=True)
    with serving(redis_url) as api:
        yield Cli(tmp_path, BOYD_URL=api.url, BOYD_API_KEY=key, BOYD_REDIS_URL=redis_url)


@pytest.fixture
def lab(store: Store) -> Lab:
    """An agent that acts each time."""
    parts = [sees("eye", seen()), reads("mind", "all is well"), chooses(choice("p:do"))]
    return lab_of(store, *parts, Recorder().action())


def past(**fields: Any) -> LoopResult:
    """An iteration that is over."""
    moment = utc_now()
    defaults = {
        "id": "test:7",
        "agent_id": "test",
        "iteration": 7,
        "trigger": "beat",
        "success": True,
        "duration": 412.0,
        "started_at": moment,
        "ended_at": moment,
    }
    return LoopResult(**{**defaults, **fields})


def acting_iteration(**fields: Any) -> LoopResult:
    """An iteration that acted."""
    result = ActionResult(**{"action": "p:do", "success": True, "duration": 1.0, **fields})
    return past(decision=choice("p:do"), action_results=[result])


# One line for an iteration


def test_a_line_tells_who_when_how_and_what() -> None:
    result = past(
        observations=[seen(), seen()],
        situation=Situation(summary="The web\n is down"),
        decision=no_op("calm"),
    )
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d  test #7  ok  412 ms  2 observations  The web is down → no-op",
        iteration_line(result),
    )


@pytest.mark.parametrize(
    ("result", "end"),
    [
        (acting_iteration(), "→ p:do ok"),
        (acting_iteration(success=False, error="exit\nstatus 3"), "→ p:do failed: exit status 3"),
        (
            acting_iteration(success=False, error="lost", unknown=True),
            "→ p:do outcome unknown: lost",
        ),
        (
            acting_iteration(
                success=False, error="Approval required", metrics={"approvalId": "1a2b3c4d-5"}
            ),
            "→ p:do sent for approval 1a2b3c4d",
        ),
        (past(success=False, error="decide failed: boom"), "→ decide failed: boom"),
        (
            past(
                decision=no_op("x"),
                trace=DecisionTrace(vetoed=Refusal(by="guard", reason="no", action="p:do")),
            ),
            "→ no-op: p:do vetoed by guard",
        ),
        (past(), "0 observations"),
    ],
)
def test_a_line_ends_with_what_the_iteration_came_to(result: LoopResult, end: str) -> None:
    assert iteration_line(result).endswith(end)


def test_a_line_says_that_observers_were_not_due() -> None:
    later = [NotDue(id=f"p:{n}", due_at=utc_now()) for n in range(2)]
    lost = Problem(id="p:bad", phase="observe", error="boom")
    assert iteration_line(past(not_due=later)).endswith("0 observations (2 observers not due)")
    line = iteration_line(past(not_due=later[:1], observer_errors=[lost], observations=[seen()]))
    assert line.endswith("1 observation (1 observer failed, 1 observer not due)")


def test_a_line_is_cut_in_the_summary_and_not_in_the_action() -> None:
    result = past(situation=Situation(summary="word " * 90), decision=no_op("calm"))
    line = iteration_line(result, 100)
    assert len(line) <= 100
    assert line.endswith("… → no-op")


def test_nothing_from_outside_reaches_the_terminal_as_a_control_character() -> None:
    result = past(success=False, error="\x1b[2J\x07gone", situation=Situation(summary="\x1b]0;x"))
    assert iteration_line(result).isprintable()


def test_durations_are_formatted_for_people() -> None:
    texts = [duration(85), duration(1400), seconds(60), seconds(125), seconds(11_400)]
    assert texts == ["85 ms", "1.4 s", "1 min", "2 min 5 s", "3 h 10 min"]


# Status


def test_status_shows_the_agent_its_observers_and_its_workers(cli: Cli, store: Store) -> None:
    lab = lab_of(store, sees("eye", seen()), fails(), reads("mind", "calm"))
    lab.run()
    output = cli("status")
    assert "test: quiet; idle" in output
    assert "test #1 ok" in output
    assert re.search(r"p:eye +ok", output)
    assert re.search(r"p:fails +failed 1 time in a row +never +RuntimeError: boom", output)
    assert re.search(r"worker +lab@here .*loop, observe, act, host, .*host.here +ok", output)


def test_status_shows_what_waits_and_what_is_held(cli: Cli, store: Store) -> None:
    action = Recorder().action(risk="high")
    lab = lab_of(store, chooses(choice(requires_approval=True)), action, mode="continuous")
    lab.run()
    lab.submit("look")
    cli("pause", "--reason", "holidays")
    cli("freeze", "--reason", "moving house")
    cli("freeze", "--all")
    output = cli("status", "--agent", "test")
    assert "test: waits for you, paused, frozen; idle" in output
    assert "waiting    1 run, 1 approval" in output
    assert re.search(r"paused +holidays \(by ann\)", output)
    assert re.search(r"frozen +moving house \(by ann\)", output)
    assert output.startswith("Actions of all agents are frozen: no reason given")


def test_status_shows_the_schedule_and_the_next_start(cli: Cli, store: Store) -> None:
    lab_of(store, schedule="0 8 1 1 *", timezone="Europe/Vienna")
    assert "test: not watching; idle" in cli("status")
    assert re.search(r"problem +no beat starts its iterations", cli("status"))
    beat: dict[str, Any] = {"name": "b", "role": "beat", "host": "here", "pid": 1, "queues": []}
    store.fleet.beat(WorkerInfo(**beat, agents=["test"], version="1", started_at=utc_now()))
    output = cli("status", "--agent", "test")
    assert "manual, at 0 8 1 1 * (Europe/Vienna)" in output
    assert re.search(r"next start +\S+-01-01 \d\d:00.* \(in \d", output)
    assert cli.json("status")["agents"][0]["nextStart"].endswith("-01-01T07:00:00Z")


def test_status_as_json_has_everything(cli: Cli, lab: Lab) -> None:
    lab.run()
    body = cli.json("status")
    assert body["agents"][0]["iteration"] == 1
    assert body["agents"][0]["observers"]["p:eye"]["failures"] == 0
    assert body["workers"][0]["name"] == "lab@here"
    assert body["frozen"] is None


def test_status_names_the_phase_that_waits_for_a_worker(cli: Cli, lab: Lab) -> None:
    lab.launcher.trigger("me")
    assert "test: quiet; start, waits for a worker" in cli("status")


def test_an_unknown_agent_has_an_exit_status_of_its_own(cli: Cli, lab: Lab) -> None:
    assert isinstance(cli.result("status", "--agent", "nobody").exception, UnknownAgent)
    result = cli.process("status", "--agent", "nobody")
    assert result.returncode == 4
    assert result.stderr == "boyd: no agent 'nobody'; known: test\n"


def test_status_without_an_api_is_one_line(cli: Cli) -> None:
    result = cli.process("status", BOYD_URL="http://127.0.0.1:1")
    assert result.returncode == 1
    assert result.stderr.startswith("boyd: the API at http://127.0.0.1:1 does not answer: connect")
    assert "start it with `boyd up`" in result.stderr
    assert result.stderr.count("\n") == 1


def test_watching_shows_each_phase_and_ends_quietly(cli: Cli, lab: Lab) -> None:
    with cli.running("status", "--watch") as watch:
        read_until(watch.stdout, "worker")
        lab.run()
        lines = read_until(watch.stdout, "test #1  ok")
        phases = [line.split("  ")[-1] for line in lines[:-1] if line]
        assert phases == ["started by test", "observe", "orient", "decide", "act", "complete"]
        watch.send_signal(signal.SIGINT)
        assert watch.wait(PATIENCE) == 0
        assert watch.stderr.read() == ""


def test_watching_as_json_gives_a_line_for_each_event(cli: Cli, lab: Lab) -> None:
    with cli.running("status", "--watch", "-o", "json") as watch:
        _until_heard(cli, watch)
        event = json.loads(read_until(watch.stdout, "agent.resumed")[-1])
    assert (event["agentId"], event["kind"]) == ("test", "agent.resumed")


def _until_heard(cli: Cli, watch: Command) -> None:
    """Pause the agent repeatedly until the watcher reports it; then resume it."""
    heard = threading.Event()

    def listen() -> None:
        read_until(watch.stdout, "agent.paused")
        heard.set()

    with beside(listen):
        while not heard.wait(0.1):
            cli("pause")
    cli("resume")


def test_watching_bears_it_when_the_api_goes_away_for_a_while(
    redis_url: str, store: Store, tmp_path: Path
) -> None:
    lab = lab_of(store, sees("eye", seen()))
    port, key = free_port(), new_key(redis_url, "ann", "read")
    cli = Cli(tmp_path, BOYD_URL=f"http://127.0.0.1:{port}", BOYD_API_KEY=key)
    with ExitStack() as stack:
        with serving(redis_url, port):
            watch = stack.enter_context(cli.running("status", "--watch"))
            read_until(watch.stdout, "worker")
        assert "retrying until it is back" in read_until(watch.stderr, "retrying")[0]
        lab.run()
        with serving(redis_url, port):
            assert read_until(watch.stderr, "is back") == ["the API is back"]
            read_until(watch.stdout, "test #1  ok")


# History


def test_history_lists_the_newest_first(cli: Cli, lab: Lab) -> None:
    for _ in range(3):
        lab.run()
    lines = cli.result("history", "--limit", "2").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["#", "3", "2"]
    assert lines[1].endswith("all is well  p:do ok")
    body = cli.json("history", "--agent", "test")
    assert [item["iteration"] for item in body] == [3, 2, 1]


def test_history_tells_what_was_done_from_what_only_waits(cli: Cli, store: Store) -> None:
    gated = Recorder().action(autonomy=Autonomy(mode="approval-required"))
    lab_of(store, reads("mind", "all is well"), chooses(choice("p:do")), gated).run()
    item = store.agent("test").approvals.page(1).pending[0]
    line = cli("history").splitlines()[1]
    assert line.endswith(f"p:do sent for approval {item.id[:8]}")


def test_an_iteration_shows_whether_its_action_had_its_effect(cli: Cli, store: Store) -> None:
    freed = EffectVerdict(verdict="effective", evidence="3 GB")
    verified = Recorder().action(verify=lambda result: freed)
    lab = lab_of(store, reads("mind", "all is well"), chooses(choice("p:do")), verified)
    lab.run()
    assert re.search(r"effect +open\n", cli("history", "1"))
    [verification] = lab.client.zrange("boyd:{test}:due", 0, -1)
    overdue(lab, verification)

    assert re.search(r"effect +effective: 3 GB\n", cli("history", "1"))


def test_into_a_pipe_no_text_is_cut(cli: Cli, store: Store) -> None:
    long = "The disk is full and " * 20 + "that is the end."
    lab_of(store, sees("eye", seen()), reads("mind", long), chooses(choice("p:do"))).run()
    assert "that is the end." in cli("history")
    assert "that is the end." in cli("status")


def test_history_leaves_out_the_iteration_in_flight_but_not_one_more(cli: Cli, lab: Lab) -> None:
    lab.run()
    lab.launcher.trigger("me")
    body = cli.json("history", "--limit", "1")
    assert [item["iteration"] for item in body] == [1]


def test_one_iteration_is_shown_with_everything(cli: Cli, store: Store) -> None:
    lab = lab_of(
        store,
        sees("eye", seen("disk", severity="warning"), seen("disk", severity="error"), seen("cpu")),
        fails("blind"),
        reads("mind", "the disk is full"),
        chooses(choice(params={"path": "/tmp"}, rationale="room is needed"), "tidy"),
        Recorder({"freed": 3}).action(),
    )
    lab.submit("look")
    lab.deliver()
    output = cli("history", "1", "--agent", "test")
    assert re.search(r"phases +start \d+ ms, observe \d+ ms, orient \d+ ms, decide", output)
    seen_there = r"p:eye: 3 observations \(1 error, 1 warning, 1 unrated\); on here, \d"
    assert re.search(seen_there, output)
    assert output.index("error disk") < output.index("warning disk") < output.index("unrated cpu")
    assert re.search(r"p:blind +observe +here +\d+ ms +RuntimeError: boom", output)
    assert re.search(r"from p:mind +the disk is full", output)
    assert re.search(r"rationale +room is needed", output)
    assert re.search(r"path +/tmp", output)
    assert re.search(r"chosen +p:tidy", output)
    assert re.search(r"action +p:do ok", output)
    assert re.search(r"host +here\n +worker +lab\n +output +{\"freed\": 3}", output)
    assert cli("history", "1") == output
    assert cli.json("history", "1")["runs"]


def test_one_iteration_shows_the_data_that_was_decided_on(cli: Cli, store: Store) -> None:
    web = seen("web", severity="error", data={"status": 500, "body": "x" * 500, "up": False})
    lab_of(store, sees("eye", web)).run()
    [line] = [line for line in cli("history", "1").splitlines() if "error web" in line]
    assert re.fullmatch(r"    error web: status=500 body=x{59}… up=false", line)


def test_observations_that_are_all_alike_are_one_line_with_their_range(
    cli: Cli, store: Store
) -> None:
    def look(shard: int) -> list[Observation]:
        return [seen(f"host-{shard:02}", severity="info", data={"load": shard / 10, "on": True})]

    many = Observer(name="many", observe=look, partition=lambda: list(range(60)))
    lab_of(store, many).run()
    output = cli("history", "1")
    assert re.search(r"p:many: 60 observations \(60 info\); 60 runs on here, [\d.]+ m?s", output)
    assert "    all 60: host-00 to host-59; load 0 to 5.9\n" in output
    assert len(output.splitlines()) < 40


def test_one_iteration_tells_which_strategies_had_no_say_and_why(cli: Cli, store: Store) -> None:
    def broken() -> bool:
        raise RuntimeError("no data")

    calm = Strategy(name="calm", decide=lambda: choice(), applicable_when=lambda: False)
    torn = Strategy(name="torn", decide=lambda: choice(), applicable_when=broken)
    lab_of(store, calm, torn).run()
    output = cli("history", "1")
    assert re.search(r"not applicable +p:calm: its predicate is false in this situation", output)
    assert re.search(r"not applicable +p:torn: its predicate failed: RuntimeError: no data", output)


def test_one_iteration_tells_everything_that_it_was_decided_on(cli: Cli, store: Store) -> None:
    def orient(ctx: Context) -> Any:
        ctx.state.get("level")
        return assessed("x")

    hooked = plugin(id="boss", on_decide=lambda: {"risk": "high"})
    own = plugin(Orienter(name="o", orient=orient), chooses(choice()), Recorder().action())
    Lab(Agent("test", plugins=[own, hooked]), client=store.client).run()
    output = cli("history", "1")
    assert re.search(r"agent +build [0-9a-f]{16}, settings [0-9a-f]{16}, Boyd [\d.]+", output)
    assert re.search(r"plugins +situation-priority [\d.]+, p [0-9a-f]{16}, boss", output)
    assert re.search(r"^  orient +\+\d+ ms +\d+ ms +lab$", output, re.MULTILINE)
    assert re.search(r"p:o +state level: absent", output)
    assert re.search(r"chosen +p:chooses: it is the first that applies", output)
    assert re.search(r"changed +risk from low to high by boss", output)
    assert re.search(r"gate +automatic: the action is auto", output)


def test_one_iteration_tells_which_observers_were_not_due(cli: Cli, store: Store) -> None:
    observer_agent = agent(sees("slow", seen(), interval=3600), mode="continuous", loop_interval=60)
    announce(store, observer_agent)
    lab = Lab(observer_agent, client=store.client)
    lab.run()
    lab.run()
    assert re.search(r"Observations\n  not due: p:slow \(in 5\d min \d+ s\)\n", cli("history", "2"))


def test_history_goes_on_behind_the_first_page(
    cli: Cli, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(7):
        lab.run()
    monkeypatch.setattr("boyd_cli.commands.history_command._PAGE", 2)
    assert [row["iteration"] for row in cli.json("history", "--limit", "6")] == [*range(7, 1, -1)]
    body = cli.json("history", "--before", "4", "--limit", "2")
    assert [row["iteration"] for row in body] == [3, 2]
    assert "For older iterations: --before 6" in cli.result("history", "--limit", "2").stderr


def test_a_veto_is_shown_with_its_reason(cli: Cli, store: Store) -> None:
    from boyd import Veto

    def on_decide() -> None:
        raise Veto("not today")

    parts = plugin(chooses(choice()), Recorder().action(), on_decide=on_decide)
    vetoed_agent = Agent("test", plugins=[parts])
    announce(store, vetoed_agent)
    Lab(vetoed_agent, client=store.client).run()
    assert re.search(r"vetoed +p:do by p: not today", cli("history", "1"))
    assert re.search(r"no-op$", cli("history").rstrip())


def test_an_iteration_that_is_not_kept_is_not_found(cli: Cli, lab: Lab) -> None:
    assert "iteration 9 of test not found" in cli("history", "9", status=4)
    lab.launcher.trigger("me")
    assert "iteration 1 is still running: start" in cli("history", "1", status=4)


# Control


def test_agents_are_listed_with_what_they_do(cli: Cli, lab: Lab) -> None:
    cli("pause")
    assert re.search(r"test +paused +\S.* nothing +idle +0 +manual +1 +", cli("agents"))
    assert cli.json("agents")[0]["paused"]


def test_a_trigger_begins_an_iteration_and_the_next_one_joins_it(cli: Cli, lab: Lab) -> None:
    assert cli("trigger") == "test #1: iteration started\n"
    joined = "test #1: joined the iteration in flight\n"
    assert cli("trigger", "--agent", "test", "--no-wait") == joined
    assert cli.json("trigger", "--context", "x")["context"] == "x"
    record = lab.store.iterations.current()
    assert record is not None
    assert record.trigger == "ann"


def test_a_trigger_that_waits_prints_the_line_of_its_iteration(cli: Cli, lab: Lab) -> None:
    with working(lab):
        result = cli.result("trigger", "--wait")
    assert result.exit_code == 0
    assert "test #1  ok" in result.stdout
    assert result.stdout.endswith("all is well → p:do ok\n")


def test_a_trigger_that_waits_fails_with_its_iteration(
    cli: Cli, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(decide, "decide", broken)
    with working(lab):
        assert "→ decide failed: RuntimeError: boom" in cli("trigger", "--wait", status=1)


def test_a_trigger_does_not_wait_longer_than_it_may(cli: Cli, lab: Lab) -> None:
    assert "test #1 had not finished after 0.1 s" in cli("trigger", "--timeout", "0.1", status=124)


def test_a_trigger_that_waits_can_be_interrupted(cli: Cli, lab: Lab) -> None:
    with cli.running("trigger", "--wait") as waiting:
        read_until(waiting.stderr, "iteration started")
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(PATIENCE) == 130
        assert waiting.stderr.read() == "It continues without this command.\n"


def test_a_key_that_may_only_trigger_may_trigger(cli: Cli, lab: Lab, redis_url: str) -> None:
    key = new_key(redis_url, "robot", "trigger")
    assert cli("trigger", BOYD_API_KEY=key) == "#1: iteration started\n"
    assert "lacks the scope 'read'" in cli("status", BOYD_API_KEY=key, status=3)


def test_a_trigger_says_when_nobody_works_for_the_agent(cli: Cli, store: Store) -> None:
    announce(store, agent())
    assert "no live worker runs test" in cli("trigger")


def test_a_paused_agent_takes_no_trigger_until_it_is_resumed(cli: Cli, lab: Lab) -> None:
    assert cli("pause", "--reason", "holidays").startswith("test is paused.")
    assert "holidays" in cli("trigger", status=5)
    assert cli("resume") == "test is resumed.\n"
    cli("trigger")


def test_work_that_waits_begins_when_the_agent_is_resumed(cli: Cli, lab: Lab) -> None:
    cli("pause")
    lab.submit("look")
    assert lab.store.iterations.current() is None
    cli("resume")
    assert lab.store.iterations.current() is not None


def test_a_freeze_stops_acting_until_it_is_lifted(cli: Cli, lab: Lab) -> None:
    cli("freeze", "--reason", "moving house")
    assert "moving house" in (lab.run().action_results[0].error or "")
    cli("unfreeze")
    assert lab.run().action_results[0].success


def test_lifting_one_freeze_tells_which_other_stays(cli: Cli, lab: Lab) -> None:
    cli("freeze", "--all")
    cli("freeze", "--agent", "test", "--reason", "why")
    lifted = cli("unfreeze", "--all")
    assert "all agents are still frozen" not in lifted
    assert "Actions of test are still frozen: why (by ann)" in lifted
    assert not lab.run().action_results[0].success
    cli("freeze", "--all")
    assert "all agents are still frozen" in cli("unfreeze", "--agent", "test")


def test_no_name_and_no_reason_forges_a_line(cli: Cli, store: Store) -> None:
    forged = "fire\nforged: all is well\u2028forged\u202e\x9b2J"
    lab_of(store, name=forged)
    cli("freeze", "--all", "--reason", forged)
    cli("freeze", "--agent", "test", "--reason", forged)
    outputs = [cli("status"), cli.result("agents").output, cli("unfreeze", "--all")]
    lines = [line for output in outputs for line in output.splitlines()]
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("forged") for line in lines)


def test_an_agent_that_nobody_knows_is_not_frozen(cli: Cli, lab: Lab) -> None:
    assert "no agent 'tset'; known: test" in cli("freeze", "--agent", "tset", status=4)
    unknown = cli.result("freeze", "--agent", "tset", "--redis")
    assert isinstance(unknown.exception, UnknownAgent)


@pytest.mark.parametrize("way", [["--redis"], []])
def test_freezing_works_while_the_api_is_down(cli: Cli, lab: Lab, way: list[str]) -> None:
    cli.environment["BOYD_URL"] = "http://127.0.0.1:1"
    frozen = cli.result("freeze", *way, "--reason", "fire")
    assert frozen.exit_code == 0
    assert ("does not answer" in frozen.stderr) == (not way)
    redis_url = cli.environment["BOYD_REDIS_URL"]
    assert f"using Redis directly: {mask_url(redis_url)}" in frozen.stderr
    assert re.search(r"fire \(by cli:\w+\)", lab.run().action_results[0].error or "")
    assert "test can act again." in cli("unfreeze", *way)
    cli("freeze", "--all", *way)
    assert "Deployment-wide freeze lifted." in cli("unfreeze", "--all", *way)


def test_freezing_does_not_wait_long_for_an_api_that_hangs(
    cli: Cli, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_commands, "_PATIENCE", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        cli.environment["BOYD_URL"] = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert "it timed out" in cli("freeze")
    assert not lab.run().action_results[0].success


def test_a_command_forbidden_by_the_api_changes_nothing(cli: Cli, lab: Lab, redis_url: str) -> None:
    cli("freeze", BOYD_API_KEY=new_key(redis_url, "bob", "read"), status=3)
    assert lab.run().action_results[0].success


def test_freezing_without_any_way_says_so(cli: Cli) -> None:
    del cli.environment["BOYD_REDIS_URL"]
    result = cli.result("freeze", BOYD_URL="http://127.0.0.1:1")
    assert isinstance(result.exception, ApiUnavailable)
    assert cli.result("freeze", "--agent", "a", "--all").exit_code == 2


def test_earned_autonomy_is_listed_and_revoked(cli: Cli, store: Store) -> None:
    action = Recorder().action(verify=lambda: True)
    lab_of(store, chooses(choice("p:do")), action)
    assert "No outcome was verified yet." in cli("autonomy", "list")
    grant = {"id": "g", "atLeast": 0.9, "since": 1, "until": 4e12, "by": ["bob"]}
    record = {"label": "slow (high)", "effective": 99, "failed": 1, "grant": grant}
    store.client.hset("boyd:{test}:track:p:do", "c1", json.dumps(record))

    listed = cli("autonomy", "list")
    assert re.search(r"p:do +slow \(high\) +99 of 100 +9\d %", listed)
    assert cli("autonomy", "revoke", "p:do", "c1").strip() == "p:do: 1 grant revoked"
    assert "revoked" in cli("autonomy", "list")
    assert "has no such grant" in cli("autonomy", "revoke", "p:do", status=4)


@pytest.fixture
def up(cli: Cli, tmp_path: Path) -> Iterator[RunningDeployment]:
    """A `boyd up` that runs here with the Redis of the tests, and whose API is away."""
    runtime = RunningDeployment(
        redis_url=cli.environment.pop("BOYD_REDIS_URL"), api_url="http://127.0.0.1:1"
    )
    state = tmp_path / "state"
    with state_lock(state), publish_runtime(state, runtime):
        yield runtime


def test_a_freeze_meant_for_another_deployment_does_not_touch_the_one_that_runs_here(
    cli: Cli, lab: Lab, up: RunningDeployment
) -> None:
    result = cli.result("freeze", BOYD_URL="http://127.0.0.1:2")
    assert isinstance(result.exception, ApiUnavailable)
    assert "http://127.0.0.1:2 does not answer" in str(result.exception)
    assert "nothing was changed" in str(result.exception)
    assert "--redis-url" in str(result.exception)
    assert lab.run().action_results[0].success


@pytest.mark.parametrize("names_url", [True, False])
def test_a_freeze_goes_to_the_redis_of_the_boyd_up_whose_api_is_away(
    cli: Cli, lab: Lab, up: RunningDeployment, names_url: bool
) -> None:
    del cli.environment["BOYD_URL"]
    frozen = cli.result("freeze", *(["--url", f"{up.api_url}/"] if names_url else []))
    assert frozen.exit_code == 0
    assert f"using Redis directly: {mask_url(up.redis_url)}" in frozen.stderr
    assert not lab.run().action_results[0].success


# What needs no Redis


def test_files_written_by_init_pass_the_check_and_run(
    cli: Cli, tmp_path: Path, deployment: Deployment
) -> None:
    folder = tmp_path / "My Agent"
    folder.mkdir()
    output = cli("init", str(folder))
    file = str(folder / "agent.toml")
    report = cli("check", file)
    assert f"ok: {file}: agent my-agent (My agent), continuous every 10 s" in report
    assert "on_decide (guard)" in report
    assert f"check '{file}' && " in output
    deployment.worker("w", file)
    result = cli.process("trigger", "--wait", "--timeout", str(PATIENCE))
    assert result.returncode == 0, result.stderr
    assert "→ hello:greet ok" in result.stdout


def test_init_makes_no_folder_that_no_agent_can_be_called_after(cli: Cli, tmp_path: Path) -> None:
    refused = cli.result("init", str(tmp_path / "Bad Name!")).exception
    assert isinstance(refused, ConfigError)
    assert str(refused).endswith("as in bad-name; nothing was written")
    assert list(tmp_path.glob("Bad*")) == []


def test_init_overwrites_nothing_and_then_writes_nothing(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "hello.py").write_text("mine")
    assert isinstance(cli.result("init", str(tmp_path)).exception, ConfigError)
    assert not (tmp_path / "agent.toml").exists()
    assert (tmp_path / "plugins" / "hello.py").read_text() == "mine"


SECRETIVE = """
from pydantic import SecretStr

from boyd import Plugin, observer


class Site(Plugin):
    id = "site"

    class Options(Plugin.Options):
        url: str = ""
        api_key: str = ""
        pin: SecretStr = SecretStr("")
        headers: dict[str, str] = {}
        nested: list[dict[str, str]] = []

    options: Options

    @observer(interval=5, timeout=3.0, queue="far")
    def look(self, ctx, shard):
        if self.options.url == "slow":
            import threading
            threading.Event().wait(20)
        if self.options.url == "broken":
            raise RuntimeError("boom")
        seen = ctx.state.get("seen", 0) + 1
        ctx.state.set("seen", seen)
        return [{"source": "site", "type": "metric", "data": {"shard": shard, "seen": seen}}]

    @look.partition
    def split(self):
        return ["a", "b"]
"""


def site(folder: Path, *options: str, **changes: str) -> str:
    """An agent file with a plugin that has secrets."""
    (folder / "plugins").mkdir(exist_ok=True)
    (folder / "plugins" / "site.py").write_text(SECRETIVE)
    file = folder / "agent.toml"
    lines = ["[[plugins]]", 'use = "site"', "[plugins.options]", *options]
    head = {"id": '"site"', "plugins_dir": '"plugins"', **changes}
    file.write_text("\n".join([*(f"{k} = {v}" for k, v in head.items()), *lines]))
    return str(file)


def test_the_effective_settings_are_shown_without_secrets(cli: Cli, tmp_path: Path) -> None:
    file = site(
        tmp_path,
        'url = "https://me:hush1@host/x"',
        'api_key = "hush2"',
        'pin = "hush3"',
        'headers = {Cookie = "hush4"}',
        'nested = [{name = "n", password = "hush5"}]',
    )
    url = "redis://:hush6@localhost:1/0"
    output = cli("check", "--print", file, BOYD_REDIS_URL=url, BOYD_BROKER_URL=url)
    assert "hush" not in output
    assert 'redis_url = "redis://:***@localhost:1/0"' in output
    assert 'option.url = "https://me:***@host/x"' in output
    assert 'option.nested = [{"name": "n", "password": "***"}]' in output
    assert "timing.lease = 3.0" in output
    assert "loop_interval = 60.0" in output


def test_the_check_names_each_component_with_what_matters(cli: Cli, tmp_path: Path) -> None:
    output = cli("check", site(tmp_path))
    assert re.search(r"observer +look: every 5 s, queue far, in shards, at most 3 s", output)


def test_the_check_goes_on_after_an_agent_that_cannot_be_used(cli: Cli, tmp_path: Path) -> None:
    good, other = tmp_path / "good", tmp_path / "other"
    good.mkdir()
    other.mkdir()
    missing = str(tmp_path / "missing.toml")
    wrong = site(other, 'ulr = "x"')
    result = cli.result("check", missing, wrong, site(good))
    assert result.exit_code == 1
    assert f"failed: {missing}: No such file" in result.stderr
    assert f"failed: {wrong}: plugin 'site': ulr: " in result.stderr
    assert result.stderr.count("\n") == 2
    assert "ok: " in result.stdout


def test_a_setting_that_does_not_exist_fails_the_check(cli: Cli) -> None:
    result = cli.process("check", BOYD_REDIS_ULR="x")
    assert result.returncode == 1
    assert "did you mean BOYD_REDIS_URL?" in result.stderr


def test_an_observer_runs_here_with_all_its_shards(cli: Cli, tmp_path: Path) -> None:
    lines = cli.result("observe", site(tmp_path), "look", "-o", "json").stdout.splitlines()
    assert [json.loads(line)["data"]["shard"] for line in lines] == ["a", "b"]
    assert "metric  site" in cli("observe", site(tmp_path), "site:look")


def test_an_observer_that_is_tried_out_knows_its_host_by_its_configured_name(
    cli: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('id = "fleet"\n[[plugins]]\nuse = "host-metrics"\n')
    result = cli.result("observe", str(file), "measure", "-o", "json", BOYD_WORKER__HOST="graz")
    hosts = [json.loads(line)["data"]["host"] for line in result.stdout.splitlines()]
    assert set(hosts) == {"graz"}


def test_an_observer_finds_its_state_in_redis(cli: Cli, store: Store, tmp_path: Path) -> None:
    state = store.agent("site").state("site")
    state.set("seen", 41)
    cli("observe", site(tmp_path), "look")
    assert state.get("seen") > 41


def test_an_observer_runs_without_redis_too(cli: Cli, tmp_path: Path) -> None:
    output = cli("observe", site(tmp_path), "look", BOYD_REDIS_URL="redis://127.0.0.1:1")
    assert "empty state" in output
    assert '"seen": 1' in output


@pytest.mark.parametrize(
    ("url", "error"), [("slow", "took longer than 3 s"), ("broken", "RuntimeError: boom")]
)
def test_an_observer_that_fails_says_how(cli: Cli, tmp_path: Path, url: str, error: str) -> None:
    file = site(tmp_path, f'url = "{url}"')
    result = cli.process("observe", file, "look")
    assert result.returncode == 1
    assert f"site:look failed: {error}" in result.stderr


def test_an_observer_that_does_not_exist_is_not_found(cli: Cli, tmp_path: Path) -> None:
    output = cli("observe", site(tmp_path), "loop", status=4)
    assert "no observer 'loop'; known: site:look" in output


# Doctor


def doctor(cli: Cli, status: int = 0, **expected_levels: str) -> dict[str, str]:
    """The findings of the doctor, by check."""
    findings = cli.json("doctor", status=status)["findings"]
    return {each["subject"]: f"{each['level']} {each['what']}" for each in findings}


def test_the_doctor_looks_at_redis_and_at_the_fleet(cli: Cli, lab: Lab) -> None:
    beats(lab_store(lab))
    report = doctor(cli)
    assert report["version"].startswith("ok ")
    assert report["persistence"].startswith("warning nothing is written to disk")
    assert report["eviction"] == "ok noeviction"
    assert report["clock"] == "ok this host and Redis agree"
    assert report["workers"] == "ok 1 worker alive on here"
    assert report["agent test"] == "ok its queues are served by 1 worker"


def lab_store(lab: Lab) -> Store:
    """The whole store that a lab works on."""
    return Store(lab.store._client, "test")


def test_the_doctor_finds_settings_of_redis_that_lose_state(
    cli: Cli, store: Store, lab: Lab
) -> None:
    used = store.client.info("memory")["used_memory"]
    store.client.config_set("maxmemory", int(used * 1.1))
    store.client.config_set("maxmemory-policy", "volatile-lru")
    try:
        report = doctor(cli, status=1)
    finally:
        store.client.config_set("maxmemory", 0)
        store.client.config_set("maxmemory-policy", "noeviction")
    assert report["eviction"].startswith("error volatile-lru")
    assert report["memory"].split()[0] in ("warning", "error")


def test_the_doctor_says_what_it_may_not_look_at(cli: Cli, store: Store, lab: Lab) -> None:
    store.client.acl_setuser(
        "shy", enabled=True, passwords=["+pw"], keys=["*"], commands=["+@all", "-info", "-config"]
    )
    try:
        url = cli.environment["BOYD_REDIS_URL"].replace("redis://", "redis://shy:pw@")
        output = cli("doctor", BOYD_REDIS_URL=url)
    finally:
        store.client.acl_deluser("shy")
    assert "permission denied" in output
    assert "pw" not in output


def test_the_doctor_finds_queues_and_ticks_that_nobody_serves(cli: Cli, store: Store) -> None:
    announce(store, agent(mode="continuous"))
    beats(store, name="w1", role="worker", queues=["loop", "observe"])
    findings = cli.json("doctor", status=1)["findings"]
    messages = [f"{f['level']} {f['what']}" for f in findings if f["subject"] == "agent test"]
    assert messages == [
        "error no live worker consumes queue 'act'",
        "error no live beat runs for it",
    ]


def test_the_doctor_finds_the_queues_that_plugins_name(
    cli: Cli, store: Store, tmp_path: Path
) -> None:
    file = site(tmp_path)
    beats(store, name="w1", role="worker", agents=["site"], queues=["loop", "observe", "act"])
    output = cli("doctor", "--agent", file, status=1)
    assert "no live worker consumes queue 'far', needed by site:look" in output


def test_the_doctor_reports_worker_problems_and_mixed_versions(cli: Cli, store: Store) -> None:
    beats(store, name="w1", role="worker", problem="3 observers hang")
    beats(store, name="w2", role="worker", version="0.0.9")
    report = doctor(cli)
    assert report["worker w1"] == "warning 3 observers hang"
    assert (
        report["versions"]
        == f"warning 0.0.9 (worker w2) and {VERSION} (worker w1) run side by side"
    )


def test_the_doctor_tells_what_is_stopped_on_purpose(cli: Cli, lab: Lab) -> None:
    cli("freeze", "--all", "--reason", "moving house")
    cli("pause", "--reason", "holidays")
    output = cli("doctor")
    assert "actions of all agents are frozen: moving house" in output
    assert "paused: holidays" in output
    assert output.endswith(" problems found.\n")


def test_the_doctor_answers_without_redis(cli: Cli) -> None:
    result = cli.process("doctor", BOYD_REDIS_URL="redis://:hush@127.0.0.1:1")
    assert result.returncode == 1
    assert result.stdout.startswith("error: redis://:***@127.0.0.1:1: Redis does not answer")
    assert "start it, or set BOYD_REDIS_URL to another server" in result.stdout
    assert result.stdout.count("\n") == 1


# On a terminal


def test_colours_are_only_for_terminals_that_want_them(cli: Cli, lab: Lab) -> None:
    lab.run()
    assert "\x1b[32mok" in cli.on_terminal("history")
    assert "\x1b[32m" not in cli.on_terminal("history", NO_COLOR="1")
    assert "\x1b" not in cli.process("history").stdout


def test_wrong_usage_has_a_status_of_its_own(cli: Cli) -> None:
    assert cli.process("history", "--limit", "none").returncode == 2


def test_every_command_explains_itself(cli: Cli) -> None:
    for name in boyd.commands or boyd.list_commands(None):  # type: ignore[arg-type]
        assert "Usage: " in cli(name, "--help")


def test_an_agent_that_nobody_runs_is_retired_once_that_is_confirmed(cli: Cli, lab: Lab) -> None:
    assert "is run by" in cli("retire", "--yes", status=5)
    for worker in lab.whole.fleet.workers():
        lab.whole.fleet.leave(worker.name)

    refused = cli.result("retire", stdin="y\n")
    assert (refused.exit_code, "pass --yes" in refused.stderr) == (2, True)
    assert "test is retired" in cli("retire", "--yes")
    assert "retired" in cli("agents", "--retired")
    assert "No agent" in cli("agents")
