"""Programs that observe and act, and those that misbehave: real processes, without a worker."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from boyd import Agent, PluginError
from boyd.agent import load_agent
from boyd.models import ActionResult, Catalog
from boyd.plugin.discovery import version_of
from boyd.testing import Lab
from boyd.text import redaction
from boyd_connectors.command.plugin import CommandPrograms
from boyd_connectors.command.program_call import ProgramFailure
from harness import wait_until
from kit import call_result, overdue
from plugin_kit import Rig
from signals import is_alive

EXAMPLE = Path(__file__).parents[3] / "examples" / "commands"
Write = Callable[[str], None]
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def program(folder: Path, text: str) -> str:
    """A program in shell."""
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def rig(argv: list[str] | str, **settings: Any) -> Rig:
    """An action `act` and an observer `look` that run the same program."""
    options = {key: settings.pop(key) for key in ("environment", "max_output") if key in settings}
    command = {"argv": [argv] if isinstance(argv, str) else argv, "timeout": 30, **settings}
    shared = {key: command[key] for key in ("argv", "timeout", "secrets") if key in command}
    return Rig(CommandPrograms(observers={"look": shared}, actions={"act": command}, **options))


def execute(argv: list[str] | str, **settings: Any) -> ActionResult:
    return rig(argv, **settings).result("act", {})


def failure_of(folder: Path, text: str, **settings: Any) -> tuple[str, bool]:
    """The reason for which a program in shell fails, and if its outcome is unknown."""
    try:
        result = execute(program(folder, text), **settings)
    except ProgramFailure as failure:
        return str(failure), False
    assert not result.success
    return str(result.error), bool(result.unknown)


def test_a_program_gets_its_call_and_gives_a_result(tmp_path: Path) -> None:
    copy = tmp_path / "request"
    path = program(tmp_path, f'cat > {copy}; echo "{{\\"result\\": {{\\"call\\": \\"$1\\"}}}}"')
    result = rig(path, params=NAME).result("act", {"name": 'it\'s $(id) "quoted"\n'})
    request = json.loads(copy.read_text())

    assert (result.success, result.output) == (True, {"call": "execute"})
    assert request["params"] == {"name": 'it\'s $(id) "quoted"\n'}
    assert (request["boyd"], request["call"], request["component"]) == (1, "execute", "command:act")
    assert copy.read_text().count("\n") == 1


def test_an_observer_gives_observations_with_a_source_and_a_time(tmp_path: Path) -> None:
    lines = (
        r'{"observation": {"type": "state", "severity": "error", "data": {"up": false}}}',
        r'{"observation": {"type": "metric", "source": "shop", "data": {"load": 1.5}}}',
        r'{"result": null}',
    )
    site = rig(program(tmp_path, "\n".join(f"echo '{line}'" for line in lines)))
    first, second = site.observe()

    assert (first.source, first.severity, first.data) == ("command/look", "error", {"up": False})
    assert (second.source, second.data) == ("shop", {"load": 1.5})
    assert first.timestamp == site.clock.time


@pytest.mark.parametrize(
    ("text", "reason", "unknown"),
    [
        ("echo oops", "line 1 is no JSON object", True),
        ('echo "[1]"', "line 1 is no JSON object", True),
        ("""echo '{"result": 1, "error": "x"}'""", "line 1 is no JSON object", True),
        ("""printf '{"result": {"a'""", "line 1 is no JSON object", True),
        ("head -c 300 /dev/urandom", "is no JSON object", True),
        ("""echo '{"result": 1}'; echo '{"result": 2}'""", "line 2 follows the line", True),
        ("true", "ended without a line `result` or `error`", True),
        ("echo why >&2; exit 3", "ended with code 3; its last words: why", False),
        ("echo usage; exit 2", "ended with code 2; line 1 is no JSON object", False),
        ("""echo '{"result": 1}'; exit 4""", "gave a result, and ended with code 4", True),
        ("""echo '{"error": "no such name"}'""", "no such name", False),
        ("""echo '{"error": "lost it", "unknown": true}'; exit 1""", "lost it", True),
        ("echo why >&2; exit 255", "ended with code 255; its last words: why", False),
        ("""echo '{"error": "no such name"}'; exit 255""", "no such name", False),
        ("kill -9 $$", "was killed by signal 9", True),
        ("kill -9 $PPID; sleep 60", "was killed by signal 9", True),
        ("exec no-such-program", "ended with code 127", False),
    ],
)
def test_a_program_that_misbehaves_fails_for_a_true_reason(
    text: str, reason: str, unknown: bool, tmp_path: Path
) -> None:
    error, is_unknown = failure_of(tmp_path, text)

    assert reason in error
    assert is_unknown is unknown
    assert ("it may have taken effect" in error) is unknown


@pytest.mark.parametrize("text", ["""echo '{"observation": {"type": "metric"}}'""", "exit 1"])
def test_an_observer_that_misbehaves_raises(text: str, tmp_path: Path) -> None:
    ending = """\necho '{"result": null}'"""
    with pytest.raises(ProgramFailure, match=r"observation 1: data|ended with code 1"):
        rig(program(tmp_path, text + ending)).observe()


def test_observations_before_a_failure_do_not_count(tmp_path: Path) -> None:
    lines = """echo '{"observation": {"type": "metric", "data": {}}}'"""
    with pytest.raises(ProgramFailure, match="without a line"):
        rig(program(tmp_path, lines)).observe()


def test_huge_output_ends_a_program(tmp_path: Path) -> None:
    error, unknown = failure_of(tmp_path, "yes", max_output=2048)

    assert (error.partition(";")[0], unknown) == ("ended: it printed more than 2048 bytes", True)


def test_much_on_standard_error_harms_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = program(tmp_path, """yes noise | head -c 5000000 >&2; echo '{"result": 1}'""")

    assert execute(path).output == 1
    assert len(caplog.records) < 300


def test_a_program_that_hangs_is_ended_with_all_that_it_has_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    escape = f"setsid sh -c 'trap \"\" TERM; echo $$ >> {pids}; while :; do sleep 0.1; done' &"
    text = f"trap '' TERM\n{escape}\n{escape}\necho $$ >> {pids}\nwhile :; do sleep 0.1; done"
    error, unknown = failure_of(tmp_path, text, timeout=3)

    assert (error.partition(";")[0], unknown) == ("ended: it took longer than 3 s", True)
    assert len(pids.read_text().split()) == 3
    wait_until(lambda: not any(is_alive(int(pid)) for pid in pids.read_text().split()))


def test_processes_that_a_program_leaves_running_end_with_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    text = f"setsid sleep 600 & echo $! > {pids}; nohup sleep 600 & echo $! >> {pids}\n"
    result = execute(program(tmp_path, f"""{text} echo '{{"result": "done"}}'"""))

    assert result.output == "done"
    wait_until(lambda: not any(is_alive(int(pid)) for pid in pids.read_text().split()))


@pytest.mark.parametrize("close", ["exec <&-", "exec 2>&-", "exec <&- 2>&-"])
def test_a_program_may_close_what_it_does_not_need(close: str, tmp_path: Path) -> None:
    path = program(tmp_path, f"""{close}; echo '{{"result": 1}}'""")

    assert rig(path, params=NAME).result("act", {"name": "x" * 1_000_000}).output == 1


def test_a_program_that_closes_its_output_is_waited_for(tmp_path: Path) -> None:
    end = tmp_path / "end"
    path = program(tmp_path, f"""echo '{{"result": 1}}'; exec >&- 2>&-; sleep 1; touch {end}""")

    assert execute(path).output == 1
    assert end.exists()


def test_an_answer_may_end_without_a_newline(tmp_path: Path) -> None:
    assert execute(program(tmp_path, """printf '{"result": [1, 2]}'""")).output == [1, 2]


@pytest.mark.parametrize("text", ["echo 1", "#!/bin/sh\r\necho 1"])
def test_a_script_without_an_interpreter_fails_with_a_hint(tmp_path: Path, text: str) -> None:
    script = tmp_path / "script.sh"
    script.write_text(text)
    script.chmod(0o700)

    plugin = CommandPrograms(actions={"act": {"argv": [str(script)]}})
    with pytest.raises(ProgramFailure, match=r"its first line has to name an interpreter"):
        Rig(plugin).result("act", {})


def test_a_file_that_is_not_executable_is_named_with_the_remedy(tmp_path: Path) -> None:
    script = tmp_path / "script.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o600)

    plugin = CommandPrograms(actions={"act": {"argv": [str(script)]}})
    problem = f"not started: {script} is not executable: chmod +x {script}"
    assert list(plugin.misfits(Catalog())) == [f"actions.act: {problem}"]


@pytest.mark.parametrize("argv", ["no-such-program", "./missing", "/etc"])
def test_a_program_that_is_not_there_is_not_started(argv: str) -> None:
    plugin = CommandPrograms(actions={"act": {"argv": [argv]}})

    with pytest.raises(
        ProgramFailure, match=r"not started: .* is no program on this host"
    ) as error:
        Rig(plugin).result("act", {})
    assert not error.value.unknown
    assert list(plugin.misfits(Catalog())) == [f"actions.act: {error.value}"]
    assert (
        list(CommandPrograms(queue="db", actions={"act": {"argv": [argv]}}).misfits(Catalog()))
        == []
    )


def test_only_the_environment_that_is_permitted_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOYD_REDIS_URL", "redis://:hush@x")
    monkeypatch.setenv("REGION", "north")
    path = program(tmp_path, f"""env > {tmp_path}/env; echo '{{"result": 1}}'""")
    execute(path, environment=["REGION"])
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}

    assert {"PATH", "REGION"} <= names
    assert not {name for name in names if name.startswith("BOYD")}


def test_a_secret_comes_by_the_input_and_goes_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(redaction, "referenced", ())
    caplog.set_level(logging.INFO)
    (tmp_path / "token").write_text("hunter-two-secret\n")
    text = f"""
    read -r request; echo "$request" > {tmp_path}/request; echo "$request" >&2
    tr '\\0' '\\n' < /proc/$$/cmdline > {tmp_path}/seen; env >> {tmp_path}/seen
    echo '{{"result": {{"token": "hunter-two-secret"}}}}'
    """
    secrets = {"token": {"file": str(tmp_path / "token")}}
    result = execute(program(tmp_path, text), secrets=secrets)

    assert json.loads((tmp_path / "request").read_text())["secrets"]["token"] == "hunter-two-secret"
    assert "hunter-two" not in (tmp_path / "seen").read_text()
    assert "hunter-two" not in caplog.text
    assert '"boyd": 1' in caplog.text
    assert result.output == {"token": redaction.MARK}
    error, _ = failure_of(tmp_path, "cat >&2; exit 1", secrets=secrets)
    assert "hunter-two" not in error


def test_params_are_checked_by_the_whole_schema() -> None:
    schema = {
        **NAME,
        "properties": {"name": {"type": "string", "pattern": "^[a-z]+$"}},
        "additionalProperties": False,
    }
    action = rig("true", params=schema, target="name").host.actions["command:act"]

    assert action.params is not None
    assert action.params.model_json_schema() == schema
    assert action.target_of({"name": "web"}) == "web"
    for params, reason in (
        ({"name": "A b"}, r"\$.name: 'A b' does not match"),
        ({}, "'name' is a required property"),
        ({"name": "a", "more": 1}, "Additional properties"),
    ):
        with pytest.raises(ValidationError, match=reason):
            action.params.model_validate(params)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"params": {"type": "array"}}, "params are an object"),
        ({"params": {"type": "objekt"}}, "no JSON Schema"),
        ({"params": {**NAME, "$ref": "http://x/y"}}, "refers to its own parts only"),
        ({"params": {"type": "object", "allOf": [{"$ref": "#"}]}}, "back to itself"),
        ({"params": {**NAME, "properties": {"name": {"$ref": "#/$defs/x"}}}}, "leads to no schema"),
        ({"argv": []}, "argv"),
        ({"timeout": 0}, "timeout"),
    ],
)
def test_a_mistake_in_the_options_is_an_error(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(PluginError, match=reason):
        CommandPrograms(actions={"act": {"argv": ["true"], **settings}})


def test_a_target_has_to_be_a_parameter() -> None:
    with pytest.raises(PluginError, match="target 'host' is not a parameter"):
        rig("true", params=NAME, target="host")


def test_an_argument_may_be_a_whole_script(tmp_path: Path) -> None:
    plugin = CommandPrograms(
        actions={"act": {"argv": ["sh", "-c", "echo '{\"result\": 1}' #" + 5000 * "."]}}
    )
    plugin.use_folder(tmp_path)

    assert Rig(plugin).result("act", {}).output == 1
    assert plugin.version == ""


def test_a_result_that_makes_no_sense_is_unknown(tmp_path: Path) -> None:
    answer = """echo '{"result": 1, "sideEffects": 5}'"""

    error, unknown = failure_of(tmp_path, answer)

    assert "the result: sideEffects" in error
    assert unknown


@pytest.mark.parametrize(
    ("answer", "verdict", "final"),
    [
        ('true, "evidence": "it is up"', "effective", True),
        ('false, "evidence": "it is down"', "no effect", False),
        ('null, "evidence": "no answer"', "cannot tell", False),
        ('"worse", "evidence": "all are down"', "worse", True),
        ('"no effect", "evidence": "still", "final": false', "no effect", False),
    ],
)
def test_a_verdict_may_have_evidence(
    answer: str, verdict: str, final: bool, tmp_path: Path
) -> None:
    path = program(tmp_path, f"""echo '{{"result": {answer}}}'""")
    action = rig(path, verify={"within": 5}).host.actions["command:act"]
    checked = action.call("verify", params={}, result=None, ctx=Rig(CommandPrograms()).ctx)

    assert (checked.verdict, checked.final) == (verdict, final)


def test_the_version_of_the_programs_is_that_of_their_files(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    before = version_of(load_agent(str(tmp_path / "agent.toml")).host.plugins["inbox"]).text
    again = version_of(load_agent(str(tmp_path / "agent.toml")).host.plugins["inbox"]).text
    with (tmp_path / "tidy.sh").open("a") as file:
        file.write("# changed\n")
    after = version_of(load_agent(str(tmp_path / "agent.toml")).host.plugins["inbox"]).text

    assert before == again != after


@pytest.mark.parametrize("language", ["shell", "JavaScript"])
def test_the_example_observes_acts_verifies_and_rolls_back(language: str, tmp_path: Path) -> None:
    name = {"shell": "inbox", "JavaScript": "outbox"}[language]
    if language == "JavaScript" and shutil.which("node") is None:
        pytest.skip("node is not installed")
    agent = example(tmp_path)
    folder = tmp_path / "folders" / name
    for number in range(5):
        (folder / f"file {number}").write_text("")
        os.utime(folder / f"file {number}", (number, number))
    names = sorted(path.name for path in folder.iterdir())
    lab = Lab(agent)
    action = f"{name}:tidy"
    preview = call_result(lab, kind="dry-run", action=action, params={"keep": 2})
    previewed = sorted(path.name for path in folder.iterdir())
    done = lab.run()
    [due] = [key for key in lab.client.zrange("boyd:{tidy}:due", 0, -1) if "verify:" in key]
    overdue(lab, due)
    execution = due.removeprefix("verify:")
    left = sorted(path.name for path in folder.iterdir())
    entry = lab.store.executions.get(execution)
    undone = call_result(lab, kind="rollback", action=action, undoes=execution)

    assert preview.output == f"would move 3 files out of {folder}"
    assert previewed == names
    assert done.action_results[0].success, done.action_results[0].error
    assert left == ["file 3", "file 4"]
    assert entry is not None
    assert entry.verification is not None
    assert entry.verification.verdict == "effective"
    assert entry.verification.evidence == "2 files are left"
    assert (undone.success, undone.output) == (True, "moved back"), undone.error
    assert sorted(path.name for path in folder.iterdir()) == names


def example(folder: Path) -> Agent:
    """The agent of the example, on folders of its own."""
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
    file, folders = folder / "agent.toml", folder / "folders"
    file.write_text(file.read_text().replace("/tmp/boyd-tidy", str(folders)))
    for name in ("inbox", "outbox"):
        (folders / name).mkdir(parents=True)
    return load_agent(str(file))
