from __future__ import annotations

import getpass
import os
from pathlib import Path
from typing import Any

import pytest

from boyd import Agent, Decision
from boyd.errors import PluginError, Veto
from boyd.models import ActionResult, Situation
from boyd.plugin import Action
from boyd.plugins.shell import Shell, runner
from boyd.plugins.shell.runner import CapturedOutput
from boyd.sandbox.accounts import account
from boyd.testing import Lab
from kit import call_result
from plugin_kit import Rig

NAMES = ["shell:bash", "shell:run_command"]


class Stub:
    """Stands in for the runner; remembers what it was to run."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.code = 0
        self.timed_out = False
        self.error: Exception | None = None

    def __call__(self, command: str, **options: Any) -> runner.CommandResult:
        self.calls.append({"command": command, **options})
        if self.error:
            raise self.error
        output = CapturedOutput(options["limit"])
        output.add(b"said\n")
        return runner.CommandResult(self.code, self.timed_out, output, 0.5)


@pytest.fixture
def command_stub(monkeypatch: pytest.MonkeyPatch) -> Stub:
    stub = Stub()
    monkeypatch.setattr(runner, "run", stub)
    return stub


def decide(
    params: Any, plugin: Shell, action: str = "shell:bash", **more: Any
) -> dict[str, Any] | None:
    rig = Rig(plugin)
    [hook] = rig.host.hooks("on_decide")
    decision = Decision(action=action, params=params, rationale="r", confidence=1.0, **more)
    answer: dict[str, Any] | None = hook(
        decision=decision,
        situation=Situation(),
        action=rig.host.actions.get(action),
        ctx=rig.ctx,
    )
    return answer


def call_bash(lab: Lab, command: str) -> ActionResult:
    """Run a command as a call over the API."""
    return call_result(lab, action="shell:bash", params={"command": command})


def test_both_names_are_actions_of_high_risk_that_may_be_taken_by_themselves() -> None:
    actions = Rig(Shell()).host.actions
    assert sorted(actions) == NAMES
    for action in actions.values():
        assert (action.risk, action.autonomy.mode) == ("high", "auto")
        assert action.timeout > 600


def test_the_queue_is_that_of_the_options() -> None:
    assert {a.queue for a in Rig(Shell(queue="act.web")).host.actions.values()} == {"act.web"}


@pytest.mark.parametrize("name", ["bash", "run_command"])
def test_a_run_answers_with_the_envelope(name: str, command_stub: Stub, tmp_path: Path) -> None:
    result = Rig(Shell(workdir=str(tmp_path))).result(name, {"command": "ls"})
    assert result.success
    assert result.output == {
        "schema": "boyd.tool_observation.v1",
        "time": "2026-01-05T12:00:00Z",
        "tool": name,
        "command": "ls",
        "workdir": str(tmp_path),
        "status": "succeeded",
        "exit_code": 0,
        "timed_out": False,
        "interactive": False,
        "truncated": False,
        "total_bytes": 5,
        "duration": 500.0,
        "output": "said\n",
    }


def test_an_exit_code_other_than_0_is_a_failure_that_keeps_the_output(command_stub: Stub) -> None:
    command_stub.code = 3
    result = Rig(Shell()).result("bash", {"command": "ls"})
    assert (result.success, result.error) == (False, "exit code 3")
    assert isinstance(result.output, dict)
    assert (result.output["status"], result.output["output"]) == ("failed", "said\n")


def test_a_time_out_is_a_failure_that_says_so(command_stub: Stub) -> None:
    command_stub.code, command_stub.timed_out = 124, True
    result = Rig(Shell()).result("bash", {"command": "ls", "timeout": 2})
    assert (result.success, result.error) == (False, "timed out after 2 s")
    assert isinstance(result.output, dict)
    assert (result.output["status"], result.output["exit_code"]) == ("failed", 124)


def test_a_command_that_cannot_be_started_fails(command_stub: Stub) -> None:
    command_stub.error = OSError("no processes left")
    result = Rig(Shell()).result("bash", {"command": "ls"})
    assert result.error == "The command cannot be started: no processes left"
    assert isinstance(result.output, dict)
    assert "exit_code" not in result.output


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [(None, 60), (0, 60), (-5, 60), (0.5, 0.5), (600, 600), (601, 600), (1e9, 600)],
)
def test_the_time_limit_is_60_seconds_and_600_at_most(
    timeout: float | None, seconds: float, command_stub: Stub
) -> None:
    Rig(Shell()).result("bash", {"command": "ls", "timeout": timeout})
    assert command_stub.calls[0]["timeout"] == seconds


def test_a_lowered_time_limit_is_noted_within_the_output_limit(command_stub: Stub) -> None:
    result = Rig(Shell()).result("bash", {"command": "ls", "timeout": 900})
    note = "\n[the time limit of 900 s was lowered to 600 s]\n"
    assert isinstance(result.output, dict)
    assert result.output["output"] == f"said\n{note}"
    assert command_stub.calls[0]["limit"] == 65536 - len(note)


def test_the_default_time_limit_is_an_option(command_stub: Stub) -> None:
    Rig(Shell(timeout=5)).result("bash", {"command": "ls"})
    assert command_stub.calls[0]["timeout"] == 5


@pytest.mark.parametrize(
    ("command", "interactive"), [("", False), ("# x", False), ("vim x", True), ("rm x", False)]
)
def test_a_refused_command_does_not_run_and_says_why(
    command: str, interactive: bool, command_stub: Stub
) -> None:
    result = Rig(Shell(deny=["rm"])).result("bash", {"command": command})
    assert not result.success
    assert command_stub.calls == []
    assert isinstance(result.output, dict)
    assert result.output["output"] == result.error
    assert result.output["status"] == "refused"
    assert result.output["interactive"] is interactive


def test_a_folder_that_does_not_exist_is_refused(command_stub: Stub) -> None:
    result = Rig(Shell()).result("bash", {"command": "ls", "workdir": "/no/such"})
    assert result.error == "Folder not found: '/no/such'"
    assert command_stub.calls == []


def test_a_folder_is_taken_from_the_one_of_the_options(command_stub: Stub, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    rig = Rig(Shell(workdir=str(tmp_path)))
    rig.result("bash", {"command": "ls", "workdir": "sub"})
    rig.result("bash", {"command": "ls", "workdir": "/"})
    assert [call["workdir"] for call in command_stub.calls] == [str(tmp_path / "sub"), "/"]


def test_a_command_needs_approval_unless_it_is_allowed() -> None:
    plugin = Shell(allow=["ls"])
    assert decide({"command": "ls -l"}, plugin) is None
    asks = decide({"command": "rm x"}, plugin)
    assert asks is not None
    assert asks["requires_approval"] is True
    assert "rm" in asks["rationale"]
    assert decide({"command": "rm x"}, plugin, "shell:run_command") == asks


def test_without_options_every_command_needs_approval() -> None:
    asks = decide({"command": "true"}, Shell())
    assert asks is not None
    assert asks["requires_approval"] is True


@pytest.mark.parametrize("params", [{}, {"command": 5}, {"command": "ls", "workdir": 5}])
def test_params_that_do_not_fit_are_not_covered(params: dict[str, Any]) -> None:
    asks = decide(params, Shell(allow=["ls"]))
    assert asks is not None
    assert asks["requires_approval"] is True


def test_a_folder_outside_of_the_one_of_the_options_needs_approval() -> None:
    inside = Shell(allow=["make"], workdir="/srv/app")
    assert decide({"command": "make", "workdir": "sub"}, inside) is None
    for folder in ("/srv", "..", "/srv/app2", "/srv/app/../x"):
        assert decide({"command": "make", "workdir": folder}, inside), folder
    assert decide({"command": "make", "workdir": "/srv"}, Shell(allow=["make"]))


def test_a_denied_command_is_vetoed_instead_of_asked_for() -> None:
    with pytest.raises(Veto, match="`rm` is denied by the policy"):
        decide({"command": "rm x"}, Shell(deny=["rm"]))
    with pytest.raises(Veto):
        decide({"command": "rm x"}, Shell(deny=["rm"]), requires_approval=True)


@pytest.mark.parametrize("command", ["", "vim x"])
def test_a_command_that_would_be_refused_needs_no_approval(command: str) -> None:
    assert decide({"command": command}, Shell()) is None


def test_other_actions_are_left_alone() -> None:
    rig = Rig(Shell(deny=["rm"]))
    other = Action(name="bash", execute=lambda params: None).bind("other")
    [hook] = rig.host.hooks("on_before_act")
    assert hook(action=other, params={"command": "rm x"}, ctx=rig.ctx) is None
    assert decide({"command": "rm x"}, Shell(deny=["rm"]), "other:bash") is None


def test_both_hooks_are_guards() -> None:
    host = Rig(Shell()).host
    hooks = [*host.hooks("on_decide"), *host.hooks("on_before_act")]
    assert [hook.fail_closed for hook in hooks] == [True, True]


def test_before_a_denied_command_is_executed_it_is_vetoed_although_it_was_approved() -> None:
    rig = Rig(Shell(deny=["rm"]))
    [hook] = rig.host.hooks("on_before_act")
    with pytest.raises(Veto):
        hook(action=rig.host.actions["shell:bash"], params={"command": "rm x"}, ctx=rig.ctx)


def test_a_call_waits_for_an_approval_whose_preview_says_what_would_run(command_stub: Stub) -> None:
    lab = Lab(Agent("a", plugins=[Shell(allow=["ls"])]))
    assert call_bash(lab, "ls").success
    assert call_bash(lab, "ls > x").waits_for
    [item] = lab.store.approvals.page(10).pending
    assert item.reason == "shell asked for an approval"
    assert item.preview is not None
    assert isinstance(item.preview.output, dict)
    assert item.preview.output["says"] == "Would run it with an approval: it has a redirection"
    assert len(command_stub.calls) == 1


@pytest.mark.parametrize(
    ("command", "says", "flags"),
    [
        ("ls", "Would run it without an approval", (True, False, False)),
        (
            "cat x",
            "Would run it with an approval: `cat x` is not allowed",
            (False, False, False),
        ),
        ("rm x", "Would refuse it: `rm` is denied by the policy", (False, True, False)),
        ("vi", "Would refuse it: Interactive: vi is an editor", (False, False, True)),
    ],
)
def test_a_dry_run_tells_what_the_policy_says(
    command: str, says: str, flags: tuple[bool, ...], command_stub: Stub
) -> None:
    rig = Rig(Shell(allow=["ls"], deny=["rm"]))
    result = rig.act("bash", {"command": command, "timeout": 900}, "dry_run")
    assert result["says"] == says
    assert (result["allowed"], result["denied"], result["interactive"]) == flags
    assert result["timeout"] == 600
    assert command_stub.calls == []


@pytest.mark.parametrize(
    "options",
    [
        {"allow": ["ls; rm"]},
        {"allow": ["sudo"]},
        {"deny": ["a | b"]},
        {"workdir": "relative"},
        {"timeout": 601},
        {"timeout": 0},
        {"max_output": 65537},
        {"environment": ["A=B"]},
        {"environment": ["BASH_FUNC_ls%%"]},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(PluginError):
        Shell(**options)


def test_a_user_that_does_not_exist_keeps_the_agent_from_starting() -> None:
    rig = Rig(Shell(user="no-such-user"))
    with pytest.raises(PluginError, match="no such user: 'no-such-user'"):
        rig.plugin.init(rig.ctx)


def test_only_root_can_run_commands_as_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    rig = Rig(Shell(user="root"))
    with pytest.raises(PluginError, match="only root can run commands as the user 'root'"):
        rig.plugin.init(rig.ctx)


def test_the_user_that_the_worker_is_needs_no_right() -> None:
    assert account(getpass.getuser()) is None


def test_commands_get_no_variable_that_could_be_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOYD_REDIS_URL", "redis://:secret@x")
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("BASH_ENV", "/x")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("APP_MODE", "test")
    env = runner.environment(["APP_MODE", "MISSING"], None)
    assert not {"BOYD_REDIS_URL", "OPENAI_API_KEY", "BASH_ENV", "MISSING"} & set(env)
    assert (env["LC_TIME"], env["APP_MODE"], env["PAGER"]) == ("C", "test", "cat")
