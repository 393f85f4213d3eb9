"""Command lines in a real bash: what they may do, and how they end."""

from __future__ import annotations

import os
import pwd
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boyd.errors import Overrun
from boyd.models import ActionResult
from boyd.phases import time_limit
from boyd.plugins.shell import Policy, Shell
from boyd.plugins.shell.runner import GRACE
from harness import wait_until
from plugin_kit import Rig
from signals import is_alive

Output = dict[str, Any]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without a profile that would say something or take its time."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(command: str, plugin: Shell | None = None, **params: Any) -> tuple[ActionResult, Output]:
    result = Rig(plugin or Shell()).result("bash", {"command": command, **params})
    assert isinstance(result.output, dict)
    return result, result.output


def output_of(command: str, plugin: Shell | None = None, **params: Any) -> str:
    result, output = run(command, plugin, **params)
    assert result.success, result.error
    return str(output["output"])


def pids(path: Path) -> list[int]:
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def test_stdout_and_stderr_come_in_the_job_in_which_they_were_written() -> None:
    assert output_of("echo one; echo two >&2; echo three") == "one\ntwo\nthree\n"


def test_the_exit_code_is_returned() -> None:
    result, output = run("echo no; exit 3")
    assert (result.success, result.error) == (False, "exit code 3")
    assert (output["status"], output["exit_code"], output["output"]) == ("failed", 3, "no\n")


def test_a_command_that_a_signal_killed_ends_with_128_and_its_number() -> None:
    assert run("kill -9 $$")[1]["exit_code"] == 137


def test_it_is_a_login_shell_without_input_in_a_session_of_its_own(home: Path) -> None:
    (home / ".bash_profile").write_text("export GREETING=hello\n")
    assert output_of("echo $GREETING; cat; echo end") == "hello\nend\n"
    assert output_of("ps -o sid= -p $$ | tr -d ' '; echo $$").split()[0] != str(os.getsid(0))
    assert output_of("test -t 0 || echo none") == "none\n"


def test_a_line_that_looks_like_an_option_is_none() -> None:
    assert run("-x")[1]["exit_code"] == 127


def test_a_broken_pipe_ends_a_command_as_usual() -> None:
    assert output_of("yes | head -1") == "y\n"


def test_variables_that_could_be_secrets_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOYD_REDIS_URL", "redis://:hush@x")
    monkeypatch.setenv("MODE", "test")
    text = output_of("env; cat /proc/$PPID/environ | tr '\\0' '\\n'", Shell(environment=["MODE"]))
    assert "hush" not in text
    assert {"MODE=test", "PAGER=cat", "GIT_TERMINAL_PROMPT=0", "TERM=dumb"} <= set(text.split())


def test_the_folder_is_the_one_that_was_asked_for(home: Path) -> None:
    assert output_of("pwd", workdir="/") == "/\n"
    assert output_of("pwd", Shell(workdir="/usr")) == "/usr\n"


def test_a_command_that_times_out_exits_with_124_and_keeps_its_output(home: Path) -> None:
    result, output = run("echo $$ > pid; echo part; sleep 60", timeout=3)
    assert result.error == "timed out after 3 s"
    assert (output["status"], output["exit_code"], output["timed_out"]) == ("failed", 124, True)
    assert output["output"] == "part\n"
    assert output["duration"] < 50_000


def test_output_during_termination_is_kept() -> None:
    _, output = run("trap 'echo cleaning; exit' TERM; sleep 60 & wait", timeout=3)
    assert (output["exit_code"], output["output"]) == (124, "cleaning\n")


def test_a_command_that_ignores_termination_is_killed_with_all_its_descendants(home: Path) -> None:
    escape = "setsid bash -c 'trap \"\" TERM; echo $$ >> pids; while :; do sleep 0.1; done' &"
    began = time.monotonic()
    _, output = run(f"trap '' TERM; {escape} {escape} echo $$ >> pids; wait", timeout=3)
    assert output["timed_out"]
    assert time.monotonic() - began < 3 + 2 * GRACE + 40
    assert len(pids(home / "pids")) == 3
    wait_until(lambda: not any(map(is_alive, pids(home / "pids"))))


def test_a_background_process_is_neither_killed_nor_waited_for(home: Path) -> None:
    began = time.monotonic()
    assert output_of("nohup sleep 60 > log 2>&1 & echo $! > pids; echo done") == "done\n"
    assert time.monotonic() - began < 50
    [pid] = pids(home / "pids")
    assert is_alive(pid)
    os.kill(pid, signal.SIGKILL)


def test_a_pipe_that_is_held_open_is_read_for_two_seconds_only(home: Path) -> None:
    began = time.monotonic()
    assert output_of("setsid sleep 60 & echo $! > pids; echo done") == "done\n"
    assert time.monotonic() - began < 50
    for pid in pids(home / "pids"):
        os.kill(pid, signal.SIGKILL)


def test_gigabytes_of_output_take_no_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _, output = run("yes", timeout=1)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert output["total_bytes"] > 10_000_000
    assert output["truncated"]
    assert len(output["output"].encode()) <= 65536
    assert grown < 32_000  # KiB


def test_head_and_tail_of_long_output_are_kept() -> None:
    text = output_of("echo first; seq 100000; echo last")
    assert text.startswith("first\n1\n2\n")
    assert text.endswith("99999\n100000\nlast\n")
    assert "bytes omitted]" in text


def test_output_that_is_no_text_is_no_problem() -> None:
    assert output_of("printf 'a\\377\\0b'") == "a?\0b"


def test_a_command_that_is_too_long_is_refused_and_one_that_just_fits_runs() -> None:
    fits = "true " + "x" * (128 * 1024 - 6)
    assert run(fits)[0].success
    assert run(fits + "x")[1]["status"] == "refused"


def test_a_worker_that_is_killed_takes_its_command_along(home: Path) -> None:
    program = (
        "from boyd.plugins.shell import runner\n"
        "line = 'echo $$ > pids; setsid sleep 60 & echo $! >> pids; sleep 61'\n"
        "env = runner.environment([], None)\n"
        f"runner.run(line, timeout=60, workdir={str(home)!r}, limit=4096, env=env)\n"
    )
    worker = subprocess.Popen([sys.executable, "-c", program])
    wait_until(lambda: len(pids(home / "pids")) == 2)
    worker.kill()
    worker.wait()
    wait_until(lambda: not any(map(is_alive, pids(home / "pids"))))


def test_a_command_that_kills_its_guardian_dies_with_it(home: Path) -> None:
    _, output = run("echo $$ > pids; kill -9 $PPID; sleep 60; echo never")
    assert output["exit_code"] == 137
    wait_until(lambda: not any(map(is_alive, pids(home / "pids"))))


def test_a_worker_that_is_interrupted_ends_its_command(home: Path) -> None:
    assert threading.current_thread() is threading.main_thread()
    with pytest.raises(Overrun):
        time_limit.call(lambda: run("echo $$ > pids; sleep 60"), 1)
    assert pids(home / "pids")
    wait_until(lambda: not any(map(is_alive, pids(home / "pids"))))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_commands_run_as_the_user_of_the_options() -> None:
    nobody = pwd.getpwnam("nobody")
    plugin = Shell(user="nobody", workdir="/")
    plugin.init(Rig(plugin).ctx)
    text = output_of("id -u; id -g; echo $USER; id -G", plugin)
    assert text.split()[:3] == [str(nobody.pw_uid), str(nobody.pw_gid), "nobody"]
    assert "0" not in text.split()[3:]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_can_neither_look_at_nor_kill_what_watches_over_its_command() -> None:
    plugin = Shell(user="nobody", workdir="/")
    _, output = run("cat /proc/$PPID/environ; kill -9 $PPID; echo still here", plugin)
    assert output["output"].count("ermi") == 2
    assert output["output"].endswith("still here\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_command_of_another_user_is_killed_like_any_other() -> None:
    _, output = run("trap '' TERM; echo $$; sleep 60", Shell(user="nobody", workdir="/"), timeout=2)
    assert output["timed_out"]
    wait_until(lambda: not is_alive(int(output["output"])))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_forbidden_working_directory_is_reported(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    _, output = run("true", Shell(user="nobody"), workdir=str(closed))
    assert output["exit_code"] == 126
    assert "Permission denied" in output["output"]


# What the policy allows runs what it names, and nothing else.

HEADS = ["ls", "git status", "cat", "ls", "git status"]
PIECES = [
    *("ls", "git", "status", "cat", "evil", "rm", "x", "a,b", "1", "2", "-v", "a=b"),
    *("$X", "${X}", "$(evil)", "`evil`", "$((", "))", "$[", "${X:=$(evil)}", "${X@P}"),
    *("$'", '$"', "a[$(evil)]", "$BASH_EXECUTION_STRING", "$_", "$", "\\", "\\\n"),
    *("(", ")", "{", "}", "'", '"', "\n", ";", "&", "&&", "|", "||", "|&", ";;", "!", "#"),
    *(">", "<", ">>", "<<EOF\n", "\nEOF\n", "<<<", "<(evil)", ">out", ">&", "&>", "2>"),
    *(">/dev/null", "2>&1", "2>/dev/null", "&>/dev/null", "</dev/null", "/dev/null", ">|"),
    *("PATH=.", "X=evil", "X+=evil", "*", "?", "[", "]", "~", "{evil,rm}", "=", "%", "^"),
    *("eval", "exec", "if", "then", "fi", "do", "done", "for", "in", "while", "case", "esac"),
    *("time", "coproc", "function", "[[", "]]", "test", "\t", "\x01", "\r", "é", "'evil'"),
]
GLUE = st.sampled_from(["", " ", " ", "\t", "\n", ";", " && ", " | ", "'", '"'])
LINES = st.lists(
    st.one_of(st.sampled_from(HEADS), st.sampled_from(PIECES), GLUE), min_size=1, max_size=12
).map(lambda parts: "".join(parts))
SPACED = st.lists(st.tuples(st.sampled_from(HEADS + PIECES), GLUE), max_size=6).map(
    lambda parts: "ls " + " ".join(part + glue for part, glue in parts)
)


@pytest.mark.slow
@pytest.mark.long
def test_nothing_that_is_allowed_can_run_another_program_or_write_a_file(tmp_path: Path) -> None:
    log, folder = tmp_path / "log", tmp_path / "folder"
    stubs = make_stubs(tmp_path / "stubs", log)
    folder.mkdir()
    for name in ("evil", "rm", "-v", "a"):
        (folder / name).touch()
    env = {
        "PATH": str(stubs),
        "X": "evil; rm `evil` $(evil)",
        "HOME": str(folder),
        "BASH_FUNC_command_not_found_handle%%": f'() {{ echo "unknown $1" >> {log}; }}',
    }
    policy = Policy(allow=["ls", "git status", "cat"])
    before, ran = sorted(folder.iterdir()), []

    @settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.one_of(LINES, SPACED))
    def check(line: str) -> None:
        verdict = policy.judge(line)
        if verdict.refused or verdict.uncovered:
            return
        log.write_text("")
        subprocess.run(
            ["/bin/bash", "-c", "--", line],
            env=env,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
        )
        started = log.read_text().splitlines()
        assert all(command in {"ls", "cat", "git status"} for command in started), (line, started)
        assert sorted(folder.iterdir()) == before, line
        ran.append(line)

    check()
    assert len(set(ran)) > 100


def make_stubs(folder: Path, log: Path) -> Path:
    """Programs that only write down that they were started."""
    folder.mkdir()
    script = (
        f'#!/bin/bash\nname=${{0##*/}}\n[ "$name" = git ] && name="git $1"\necho "$name" >> {log}\n'
    )
    for name in ("ls", "git", "cat", "evil", "rm", "status", "x", "test1"):
        stub = folder / name
        stub.write_text(script)
        stub.chmod(stub.stat().st_mode | stat.S_IXUSR)
    return folder
