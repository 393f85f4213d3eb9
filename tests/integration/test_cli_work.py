"""`boyd runs`, `actions`, `events`, `observers`, `keys` and `audit` over the API."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from api_kit import InlineDispatcher
from boyd.models import Autonomy, ExecutionEntry
from boyd.plugin import Action
from boyd.store import Store
from boyd.testing import Lab
from boyd_cli.terminal import Spinner
from cli_kit import Cli, beside, lab_of, leaves, new_key, read_until, serving
from harness import free_port, wait_until
from kit import Recorder, fails, reads, seen, sees

pytestmark = pytest.mark.real

UNKNOWN = "01234567-0123-0123-0123-0123456789ab"


class Place:
    """An agent with an imaginary worker, an API before it, and `ann`, who may do all."""

    def __init__(self, redis_url: str, store: Store, folder: Path) -> None:
        self.redis_url = redis_url
        self.recorder = Recorder({"moved": 2})
        self.lab = lab_of(
            store,
            sees("eye", seen()),
            fails(),
            reads("mind", "all is well"),
            self.recorder.action(risk="high"),
            Action(name="gated", execute=lambda: "ok", autonomy=Autonomy(mode="human-only")),
            Action(
                name="careful",
                execute=lambda: "ok",
                dry_run=lambda: "would do it",
                rollback=lambda: "as it was",
            ),
        )
        self.dispatcher = InlineDispatcher(self.lab)
        key = new_key(redis_url, "ann", "admin", person=True)
        self.cli = Cli(folder, BOYD_API_KEY=key)

    def reader(self) -> str:
        """The key of somebody who may only look."""
        return new_key(self.redis_url, "eve", "read")


@pytest.fixture
def place(redis_url: str, store: Store, tmp_path: Path) -> Iterator[Place]:
    """A place to work at."""
    work_place = Place(redis_url, store, tmp_path)
    with serving(redis_url, dispatcher=work_place.dispatcher) as api:
        work_place.cli.environment["BOYD_URL"] = api.url
        yield work_place


@pytest.fixture
def cli(place: Place) -> Cli:
    """The commands."""
    return place.cli


@pytest.fixture
def lab(place: Place) -> Lab:
    """The agent."""
    return place.lab


# Runs


def test_a_run_is_submitted_and_its_id_printed(cli: Cli, lab: Lab, place: Place) -> None:
    place.dispatcher.held = True
    run_id = cli("runs", "submit", "look", "--priority", "high", "--context", '{"host": "a"}')
    run = lab.store.runs.get(run_id.strip())
    assert run is not None
    assert (run.title, run.description, run.priority) == ("look", "look", "high")
    assert (run.context, run.source, run.requested_by) == ({"host": "a"}, "cli", ["ann"])


def test_a_description_can_come_from_a_pipe(cli: Cli, lab: Lab, place: Place) -> None:
    place.dispatcher.held = True
    result = cli.result("runs", "submit", "look", "--description", "-", "--kind", "x", stdin="long")
    run = lab.store.runs.get(result.stdout.strip())
    assert run is not None
    assert (run.description, run.kind) == ("long", "x")


def test_a_run_that_is_waited_for_shows_its_result(cli: Cli) -> None:
    result = cli.result("runs", "submit", "look", "--wait")
    assert result.exit_code == 0
    assert "look: completed" in result.stdout
    assert re.search(r"finding +all is well", result.stdout)


def test_runs_are_listed_and_found_by_the_beginning_of_their_ids(cli: Cli, place: Place) -> None:
    assert cli("runs", "list") == "No runs found.\n"
    run_id = cli("runs", "submit", "look").strip()
    assert re.search(rf"{run_id[:8]} +completed +medium .* cli +ann +look", cli("runs", "list"))
    assert "No runs found." in cli("runs", "list", "--status", "pending", "--source", "cli")
    assert re.search(r"asked by +ann", cli("runs", "show", run_id[:6]))
    assert cli.json("runs", "show", run_id)["id"] == run_id
    assert "no run 'zzz'" in cli("runs", "show", "zzz", status=4)
    assert "no run" in cli("runs", "show", UNKNOWN, status=4)


def test_a_run_is_cancelled_once(cli: Cli, place: Place) -> None:
    place.dispatcher.held = True
    run_id = cli("runs", "submit", "look").strip()
    assert cli("runs", "cancel", run_id[:8], "--reason", "why") == (
        f"run {run_id[:8]} is cancelled\n"
    )
    assert "is already cancelled" in cli("runs", "cancel", run_id, status=5)
    assert "cancelled by ann: why" in cli("runs", "wait", run_id, status=1)


def test_waiting_for_a_run_ends_with_it(cli: Cli, lab: Lab, place: Place) -> None:
    place.dispatcher.held = True
    run_id = cli("runs", "submit", "look").strip()
    assert "is pending after 0.1 s" in cli("runs", "wait", run_id, "--timeout", "0.1", status=124)
    with cli.running("runs", "wait", run_id, "-o", "json") as waiting:
        lab.deliver()
        assert '"completed"' in read_until(waiting.stdout, '"status"')[-1]
        assert waiting.wait(120) == 0


def test_the_api_may_go_away_while_somebody_waits(
    redis_url: str, store: Store, tmp_path: Path
) -> None:
    place, port = Place(redis_url, store, tmp_path), free_port()
    place.dispatcher.held = True
    place.cli.environment["BOYD_URL"] = f"http://127.0.0.1:{port}"
    with ExitStack() as stack:
        with serving(redis_url, port, place.dispatcher):
            arguments = ["runs", "submit", "look", "--wait"]
            waiting = stack.enter_context(place.cli.running(*arguments))
            read_until(waiting.stderr, "is pending")
        read_until(waiting.stderr, "retrying until it is back")
        place.lab.deliver()
        with serving(redis_url, port, place.dispatcher):
            read_until(waiting.stdout, "look: completed")
            assert waiting.wait(120) == 0


def test_a_callback_is_shown_and_sent_again(cli: Cli) -> None:
    run_id = cli("runs", "submit", "look", "--callback-url", "https://8.8.8.8/x").strip()
    output = cli("runs", "show", run_id)
    assert "https://8.8.8.8/x: queued, 0 attempts" in output
    assert "will be sent again" in cli("runs", "redeliver", run_id)
    bare = cli("runs", "submit", "look").strip()
    assert "has no callback" in cli("runs", "redeliver", bare, status=4)


def test_a_run_with_invalid_options_is_refused(cli: Cli) -> None:
    assert "callbackUrl" in cli("runs", "submit", "look", "--callback-url", "ftp://x", status=1)
    cli("runs", "submit", "look", "--context", "[]", status=2)
    cli("runs", "submit", "look", "--context", "{", status=2)


# Actions


def test_actions_are_listed(cli: Cli) -> None:
    output = cli("actions", "list")
    assert re.search(r"p:do +high +auto +no +unknown +any", output)
    assert re.search(r"p:careful .* yes +reversible", output)
    assert len(cli.json("actions", "list")) == 3


def test_an_action_is_taken_with_its_parameters(cli: Cli, place: Place) -> None:
    arguments = ["-p", "room=attic", "-p", "deep=true", "--params", '{"n": 1, "deep": false}']
    output = cli("actions", "run", "p:do", *arguments, "--reason", "a mess")
    assert place.recorder.calls == [{"n": 1, "deep": True, "room": "attic"}]
    assert re.search(r'p:do ok\n +took .*\n +output +{"moved": 2}', output)
    assert "execution  call:" in output
    cli("actions", "run", "p:do", "-p", "room", status=2)


def test_an_action_that_fails_fails_the_command(cli: Cli, place: Place) -> None:
    place.recorder._error = RuntimeError("boom")
    assert "p:do failed: RuntimeError: boom" in cli("actions", "run", "p:do", status=1)
    assert "has no action 'p:no'" in cli("actions", "run", "p:no", status=4)
    cli("actions", "run", "p:do", status=3, BOYD_API_KEY=place.reader())


def test_an_action_that_needs_a_person_says_what_it_waits_for(cli: Cli, lab: Lab) -> None:
    output = cli("actions", "run", "p:do", "--require-approval", status=124)
    [item] = lab.store.approvals.page(5).pending
    assert f"it waits for approval {item.id[:8]}" in output
    assert item.requested_by == ["ann"]


def test_an_action_that_is_queued_may_come_to_wait_for_a_person(
    cli: Cli, lab: Lab, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.dispatcher.held = True
    monkeypatch.setattr(Spinner, "pause", lambda *_: lab.deliver())
    output = cli("actions", "run", "p:do", "--require-approval", status=124)
    [item] = lab.store.approvals.page(5).pending
    assert f"it waits for approval {item.id[:8]}" in output


def test_an_action_that_takes_longer_can_be_asked_for_later(cli: Cli, place: Place) -> None:
    place.dispatcher.held = True
    output = cli("actions", "run", "p:do", "--wait", "0.1", status=124)
    assert re.search(r"it is queued; call:[\w-]+ continues", output)
    assert "it is queued" in cli("actions", "run", "p:do", "--wait", "0", status=124)


def test_a_queued_action_is_cancelled(cli: Cli, place: Place, lab: Lab) -> None:
    place.dispatcher.held = True
    output = cli("actions", "run", "p:do", "--wait", "0", status=124)
    [id] = re.findall(r"actions cancel (call:[\w-]+)", output)
    assert f"{id[:13]}: p:do is cancelled" in cli("actions", "cancel", id, "--reason", "too late")
    lab.deliver()

    assert lab.store.executions.get(id) is None
    assert "no queued execution 'call:1'" in cli("actions", "cancel", "call:1", status=4)


def test_an_action_that_has_ended_is_not_cancelled(cli: Cli) -> None:
    [id] = re.findall(r"call:[\w-]+", cli("actions", "run", "p:do"))
    assert "has ended" in cli("actions", "cancel", id, status=5)


def test_an_approval_that_was_asked_for_is_named_even_without_waiting(
    cli: Cli, lab: Lab, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.dispatcher.held = True
    monkeypatch.setattr(Spinner, "pause", lambda *_: lab.deliver())
    output = cli("actions", "run", "p:do", "--require-approval", "--wait", "0", status=124)
    [item] = lab.store.approvals.page(5).pending
    assert f"it waits for approval {item.id[:8]}" in output


def test_the_manifest_of_an_action_is_shown(cli: Cli) -> None:
    output = cli("actions", "show", "p:careful")
    assert "risk" in output
    assert "none: it runs in the worker" in output
    assert re.search(r"in flight +at most 1 per target\n", output)
    assert cli.json("actions", "show", "p:careful")["id"] == "p:careful"
    assert "did you mean p:careful" in cli("actions", "show", "p:carefull", status=4)


def test_an_action_is_tried_out_and_undone(cli: Cli, lab: Lab) -> None:
    assert "would do it" in cli("actions", "dry-run", "p:careful")
    body = cli.json("actions", "run", "p:careful")
    assert body["success"]
    assert isinstance(lab.store.executions.get(body["executionId"]), ExecutionEntry)
    assert "as it was" in cli("actions", "rollback", body["executionId"], "--reason", "no")
    assert "has been rolled back already" in cli(
        "actions", "rollback", body["executionId"], status=5
    )
    assert "no execution" in cli("actions", "rollback", "loop:99", status=4)


def test_an_execution_is_undone_by_the_name_that_the_list_shows(cli: Cli) -> None:
    cli("actions", "run", "p:careful")
    [name] = re.findall(r"^call:\w+(?= )", cli("actions", "executions"), re.MULTILINE)
    assert "as it was" in cli("actions", "rollback", name)
    assert "no execution" in cli("actions", "rollback", "call:0000", status=4)


LISTS = [
    path
    for path, command in leaves()
    if (command.help or "").startswith("List ")
    and str(getattr(command.callback, "__module__", "")).startswith("boyd_cli.")
    and not any(param.required for param in command.params)
]


@pytest.mark.parametrize("path", [*LISTS, ("history",)], ids=" ".join)
def test_every_command_that_lists_prints_one_json_list(cli: Cli, path: tuple[str, ...]) -> None:
    assert isinstance(cli.json(*path), list)


# Events and observers


def test_events_of_the_past_are_shown_and_the_command_ends(cli: Cli, lab: Lab) -> None:
    lab.run()
    lines = cli("events").splitlines()
    assert "test #1  started by test" in lines[0]
    assert "iteration 1 completed" in lines[-1]
    events = list(yaml.safe_load_all(cli("events", "--since", "1m", "-o", "yaml")))
    assert (events[0]["agentId"], events[0]["kind"]) == ("test", "iteration.started")
    cli("events", "--since", "soon", status=2)


def test_events_are_followed_from_the_past_on(cli: Cli, lab: Lab) -> None:
    lab.run()
    with cli.running("events", "--since", "1h", "--follow", "-o", "json") as following:
        read_until(following.stdout, '"iteration.completed"')
        lab.run()
        lines = read_until(following.stdout, '"iteration.completed"')
        assert json.loads(lines[0])["data"]["iteration"] == "2"
        following.send_signal(signal.SIGINT)
        assert following.wait(120) == 0


def test_observers_are_listed_with_their_health(cli: Cli, lab: Lab) -> None:
    lab.run()
    output = cli("observers")
    assert re.search(r"p:eye +ok +(just now|\d+ s ago)", output)
    assert re.search(r"p:fails +failed 1 time in a row +never +RuntimeError: boom", output)
    assert yaml.safe_load(cli("observers", "-o", "yaml"))[0]["id"] == "p:eye"


# Keys and the audit trail


def test_keys_are_made_listed_and_revoked_over_the_api(cli: Cli, redis_url: str) -> None:
    body = cli.json("keys", "create", "ci", "--principal", "ci", "--scope", "read")
    assert body["createdBy"] == "ann"
    assert "test: quiet; idle" in cli("status", BOYD_API_KEY=body["key"])
    assert re.search(r"ci +ci +read", cli("keys", "list"))
    assert cli("keys", "revoke", body["id"][:8]) == f"key {body['id']} is revoked\n"
    assert "revoked" in cli("status", BOYD_API_KEY=body["key"], status=3)
    assert "no key" in cli("keys", "revoke", "zzz", status=4)


@pytest.mark.parametrize("redis", [False, True])
def test_a_key_is_rotated_with_the_rights_of_the_old_one(
    cli: Cli, redis_url: str, redis: bool
) -> None:
    direct = ["--redis", "--redis-url", redis_url] if redis else []
    rights = ["--scope", "read,runs", "--group", "ops", "--agent", "test"]
    old = cli.json("keys", "create", "ci", "--principal", "ci", *rights)
    new = cli.json("keys", "rotate", old["id"][:8], "--expires", "90d", *direct)

    same = ("name", "principal", "scopes", "groups", "agents")
    assert [new.get(name) for name in same] == [old.get(name) for name in same]
    assert new["id"] != old["id"]
    assert "expiresAt" in new
    assert "test: quiet; idle" in cli("status", BOYD_API_KEY=new["key"])
    assert "test: quiet; idle" in cli("status", BOYD_API_KEY=old["key"])
    cli("keys", "rotate", new["id"], "--revoke", *direct)
    assert "revoked" in cli("status", BOYD_API_KEY=new["key"], status=3)


def test_lists_are_taken_with_commas_as_they_are_printed(cli: Cli) -> None:
    arguments = ["--scope", "read, approvals", "--scope", "runs", "--group", "ops,dba"]
    body = cli.json("keys", "create", "ci", "--principal", "ci", *arguments, "--agent", "a,b")
    assert body["scopes"] == ["read", "approvals", "runs"]
    assert (body["groups"], body["agents"]) == (["ops", "dba"], ["a", "b"])
    wrong = ["keys", "create", "ci", "--principal", "ci"]
    output = cli(*wrong, "--scope", "read,aproval", status=2)
    assert "'aproval' is not a valid choice; did you mean 'approvals'?" in output
    assert "empty values are not allowed" in cli(*wrong, "--scope", "read", "--agent", "", status=2)


def test_an_invalid_number_is_a_usage_error(cli: Cli) -> None:
    assert "'abc' is not the number of an iteration" in cli("history", "abc", status=2)
    assert "'soon' is not a valid number" in cli("trigger", "--timeout", "soon", status=2)


def test_keys_are_made_directly_on_redis_when_it_is_asked_for(cli: Cli, redis_url: str) -> None:
    arguments = ["keys", "create", "ci", "--principal", "ci", "--scope", "read", "-o", "json"]
    for options in (["--redis"], []):
        environment = {"BOYD_REDIS_URL": redis_url} if options else {}
        data = json.loads(cli.result(*arguments, *options, **environment).stdout)
        assert data["createdBy"].startswith("cli:" if options else "ann")
    assert "cli:" in cli("keys", "list", "--redis-url", redis_url, "-o", "yaml")


def test_the_audit_trail_is_shown_verified_and_exported_over_the_api(cli: Cli) -> None:
    cli("pause", "--reason", "holidays")
    cli("resume")
    first, second = cli("audit", "show").splitlines()
    assert "ann from 127.0.0.1  agent.paused" in first
    assert "agent.resumed" in second
    assert "agent.resumed" in cli("audit", "show", "--limit", "1", "-o", "json")
    output = cli("audit", "verify")
    assert output.startswith("ok    test  2 valid entries")
    head = output.split()[-1]
    assert cli("audit", "verify", "--expect", head).startswith("ok")
    cli("audit", "verify", "--expect", f"9:{'0' * 64}", status=1)
    lines = [json.loads(line)["kind"] for line in cli("audit", "export").splitlines()]
    assert lines == ["agent.paused", "agent.resumed"]
    assert cli("audit", "export", "--since", "2999-01-01") == ""


def test_executions_are_filtered_by_host_and_time(cli: Cli) -> None:
    cli("actions", "run", "p:do")
    body = cli.json("actions", "executions", "--host", "here", "--since", "1h")
    assert [(row["action"], row["host"], row["state"]) for row in body] == [
        ("p:do", "here", "succeeded")
    ]
    assert re.search(r"call:\S+ +[\d :+-]+ +p:do +succeeded", cli("actions", "executions"))
    assert cli("actions", "executions", "--host", "there") == "No executions found.\n"
    cli("actions", "executions", "--since", "soon", status=2)


def test_the_audit_trail_is_filtered_over_the_api(cli: Cli) -> None:
    cli("actions", "run", "p:do")
    cli("pause", "--reason", "x")
    output = cli("audit", "show", "--host", "here", "--since", "1h", "--until", "2999-01-01")
    assert [line.split()[4] for line in output.splitlines()] == [
        "action.started",
        "action.succeeded",
    ]
    assert "host=here worker=lab" in output
    assert len(cli("audit", "export", "--kind", "agent", "--by", "ann").splitlines()) == 1
    assert cli("audit", "show", "--by", "nobody") == "No matching entries.\n"


def test_the_audit_trail_is_followed_over_the_api(cli: Cli) -> None:
    cli("pause")
    with cli.running("audit", "show", "--follow") as following:
        read_until(following.stdout, "agent.paused")
        cli("resume")
        read_until(following.stdout, "agent.resumed")
        following.send_signal(signal.SIGINT)
        assert following.wait(120) == 0


def test_the_trail_of_the_deployment_is_read_over_the_api_or_on_redis(
    cli: Cli, redis_url: str, place: Place
) -> None:
    assert "key.created" in cli("audit", "show", "--deployment")
    assert cli("audit", "verify", "--deployment").startswith("ok    deployment")
    kinds = [
        json.loads(line)["kind"] for line in cli("audit", "export", "--deployment").splitlines()
    ]
    assert "key.created" in kinds
    assert "lacks the scope" in cli(
        "audit", "show", "--deployment", BOYD_API_KEY=place.reader(), status=3
    )
    assert "key.created" in cli("audit", "show", "--deployment", BOYD_REDIS_URL=redis_url)


def test_all_trails_are_verified_over_the_api_or_on_redis(cli: Cli, redis_url: str) -> None:
    cli("pause", "--reason", "holidays")
    output = cli("audit", "verify", "--all")
    directly = cli("audit", "verify", "--all", "--redis", BOYD_REDIS_URL=redis_url)

    for lines in (output.splitlines(), directly.splitlines()):
        assert [line.split()[:2] for line in lines] == [["ok", "deployment"], ["ok", "test"]]


@pytest.mark.parametrize(
    "arguments",
    [
        ["keys", "revoke", ""],
        ["runs", "show", ""],
        ["runs", "cancel", ""],
        ["runs", "wait", ""],
        ["runs", "redeliver", ""],
        ["investigations", "show", ""],
        ["investigations", "follow", ""],
        ["investigations", "cancel", ""],
        ["chat", ""],
        ["actions", "run", ""],
        ["actions", "dry-run", ""],
        ["actions", "rollback", ""],
        ["actions", "rollback", "approval:"],
        ["goals", "show", ""],
        ["questions", "answer", "", "blue"],
    ],
    ids=" ".join,
)
def test_an_empty_id_is_wrong_usage_and_means_nothing(
    cli: Cli, lab: Lab, arguments: list[str]
) -> None:
    run_id = cli("runs", "submit", "look").strip()
    output = cli(*arguments, status=2)
    assert re.search(r"the id is empty|has an empty id", " ".join(output.split()))
    assert cli.json("runs", "show", run_id)["status"] != "cancelled"
    assert len(cli.json("keys", "list")) == 1


@pytest.mark.parametrize("option", ["--agent", "--url", "--profile", "--redis-url"])
def test_an_empty_option_is_not_taken_for_the_only_thing_there_is(
    cli: Cli, lab: Lab, option: str
) -> None:
    assert "it is empty" in cli("freeze", option, "", status=2)
    lab.run()
    assert cli.json("status")["agents"][0].get("frozen") is None


def test_a_question_or_title_without_anything_in_it_is_wrong_usage(cli: Cli) -> None:
    for command in (["ask", " "], ["runs", "submit", ""]):
        assert "it must not be empty" in cli(*command, status=2)
    assert cli.json("runs", "list") == []


def test_a_command_or_action_that_is_mistyped_is_answered_by_what_was_meant(cli: Cli) -> None:
    assert "no command 'staus'; did you mean status" in cli("staus", status=2)
    assert "--help lists" in cli("xyzzy", status=2)
    assert "did you mean p:careful?" in cli("actions", "run", "p:carefull", status=4)
    assert "actions list` lists" in cli("actions", "dry-run", "xyzzy", status=4)


def test_a_number_where_a_text_is_wanted_says_how_to_write_it(
    redis_url: str, store: Store, tmp_path: Path
) -> None:
    class Version(BaseModel):
        version: str

    lab = lab_of(store, Action(name="set", execute=lambda params: "set", params=Version))
    cli = Cli(tmp_path, BOYD_API_KEY=new_key(redis_url, "ann", "admin"))
    with serving(redis_url, dispatcher=InlineDispatcher(lab)) as api:
        cli.environment["BOYD_URL"] = api.url
        output = cli("actions", "run", "p:set", "-p", "version=1.10", status=1)
        assert """to pass it as text, use -p 'version="1.10"'""" in output
        assert "set" in cli("actions", "run", "p:set", "-p", 'version="1.10"')


# Whoever may not, and what is not there


def test_a_key_that_is_none_is_refused_with_a_status_of_its_own(cli: Cli) -> None:
    wrong = cli.process("status", BOYD_API_KEY="boyd_none")
    assert wrong.returncode == 3
    assert wrong.stderr.startswith(
        "boyd: the key is not known, or was revoked; pass one with --key"
    )
    del cli.environment["BOYD_API_KEY"]
    none = cli.process("runs", "list")
    assert (none.returncode, none.stdout) == (3, "")
    assert "no key was sent" in none.stderr


def test_with_several_agents_a_command_needs_a_name(cli: Cli, store: Store) -> None:
    entry = store.fleet.agents()["test"]
    store.fleet.register(entry.patched({"id": "other"}))
    assert "--agent NAME: other, test" in cli("pause", status=4)
    assert "other is paused" in cli("pause", "--agent", "other")
    assert "test is paused" in cli("pause", BOYD_AGENT="test")
    assert "Actions of test are frozen." in cli("freeze", BOYD_AGENT="test")
    assert {row["id"] for row in cli.json("agents")} == {"other", "test"}


# Shells


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete_commands(cli: Cli, shell: str) -> None:
    assert "_BOYD_COMPLETE" in cli("completion", shell)


def test_completion_knows_commands_and_options(cli: Cli) -> None:
    environment = {"_BOYD_COMPLETE": "bash_complete", "COMP_WORDS": "boyd appr", "COMP_CWORD": "1"}
    assert cli.process(**environment).stdout == "plain,approvals\n"
    environment |= {"COMP_WORDS": "boyd approvals list --wa", "COMP_CWORD": "3"}
    assert cli.process(**environment).stdout == "plain,--watch\n"


def complete_line(cli: Cli, line: str, **more: str) -> list[str]:
    """The completions that bash offers at the end of a line."""
    program = (
        f'boyd() {{ "{cli.argv([])[0]}" -m boyd_cli "$@"; }}\n'
        f"{cli('completion', 'bash')}\n"
        'COMP_LINE=$1 COMP_POINT=${#1}\n_boyd_completion boyd\nprintf "%s\\n" "${COMPREPLY[@]}"'
    )
    result = subprocess.run(
        ["bash", "-c", program, "bash", line],
        env={**os.environ, **cli.environment, **more},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stderr == ""
    return result.stdout.split()


@pytest.mark.long
def test_bash_completes_names_with_colons(cli: Cli) -> None:
    assert complete_line(cli, "boyd actions run p:ca") == ["careful"]
    assert complete_line(cli, "boyd actions dry-run p:") == ["do", "gated", "careful"]
    assert complete_line(cli, "boyd actions ru") == ["run"]
    assert complete_line(cli, "boyd runs list --stat") == ["--status"]


@pytest.mark.long
def test_a_shell_completes_agents_iterations_and_ids(cli: Cli, lab: Lab) -> None:
    lab.run()
    run_id = json.loads(cli.result("runs", "submit", "look", "-o", "json").stdout)["id"]
    [key] = cli.json("keys", "list")
    assert complete_line(cli, "boyd status --agent ") == ["test"]
    assert complete_line(cli, "boyd history --agent=te") == ["test"]
    assert "1" in complete_line(cli, "boyd history ")
    assert complete_line(cli, f"boyd runs show {run_id[:6]}") == [run_id]
    assert complete_line(cli, "boyd keys revoke ") == [key["id"]]
    assert complete_line(cli, "boyd keys create x --scope read,appr") == ["read,approvals"]


@pytest.mark.long
def test_a_shell_is_offered_nothing_where_nobody_answers(cli: Cli) -> None:
    assert complete_line(cli, "boyd actions run ", BOYD_URL="http://127.0.0.1:1") == []
    assert complete_line(cli, "boyd actions run ", BOYD_API_KEY="wrong") == []


def test_looking_at_the_version_loads_nothing_heavy(cli: Cli) -> None:
    code = "import sys, boyd_cli.group as g; g.boyd(['--version'], standalone_mode=False);"
    code += "print(sorted({'requests', 'redis', 'celery', 'rich', 'yaml'} & set(sys.modules)))"
    process = subprocess.run(
        [cli.argv([])[0], "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert process.endswith("[]\n")


def test_a_run_ends_while_a_terminal_shows_that_it_is_waited_for(
    cli: Cli, lab: Lab, place: Place
) -> None:
    place.dispatcher.held = True

    def work() -> None:
        wait_until(lambda: lab.dispatcher.hints)
        lab.deliver()

    with beside(work), cli.terminal("runs", "submit", "look", "--wait") as terminal:
        assert "look: completed" in terminal.rest()
        assert terminal.process.wait(120) == 0


def test_choices_are_made_before_anything_is_asked(cli: Cli) -> None:
    cli("runs", "list", "--status", "nope", status=2)
    cli("completion", "csh", status=2)
