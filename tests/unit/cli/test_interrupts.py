"""Signals in the first moments of a command, and how little has to be imported for one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from boyd_cli import INTERRUPTED, TERMINATED, Importing, is_interrupt

#: Starts a command, and sends SIGINT to itself when it begins to import a module.
_PROGRAM = """
import os, signal, sys
from boyd_cli import main

module, sys.argv = sys.argv[1], ["boyd", *sys.argv[2:]]

class Finger:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Finger())
main()
"""


#: Takes itself for the first process of a container, and gets SIGTERM before it imports a module.
_FIRST_PROCESS = """
import os, signal, sys
from boyd_cli import main

pid, os.getpid = os.getpid(), lambda: 1
sys.argv = ["boyd", "status"]

class Supervisor:
    def find_spec(self, name, path=None, target=None):
        os.kill(pid, signal.SIGTERM)

sys.meta_path.insert(0, Supervisor())
main()
"""


def interrupt_import(module: str, *command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command that gets Ctrl-C while it imports *module*."""
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM, module, *command],
        env={**os.environ, "BOYD_STATE_DIR": str(folder), "XDG_CONFIG_HOME": str(folder)},
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=60,
    )


@pytest.mark.parametrize(
    "module", ["click", "boyd_cli.commands.status_command", "pydantic", "boyd.models"]
)
def test_ctrl_c_while_modules_are_imported_ends_calmly(module: str, tmp_path: Path) -> None:
    done = interrupt_import(module, "status", folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (INTERRUPTED, "", "")


@pytest.mark.long
def test_ctrl_c_while_an_agent_is_loaded_ends_calmly(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_text(
        'id = "slow"\nplugins_dir = "plugins"\n[[plugins]]\nuse = "slow"\n'
    )
    (tmp_path / "plugins").mkdir()
    plugin = 'import colorsys\nfrom boyd import Plugin\nclass Slow(Plugin):\n    id = "slow"\n'
    (tmp_path / "plugins" / "slow.py").write_text(plugin)
    done = interrupt_import("colorsys", "up", "agent.toml", folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (INTERRUPTED, "", "")


def test_sigterm_ends_the_first_process_of_a_container_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", _FIRST_PROCESS], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (TERMINATED, b"", b"")


@pytest.mark.long
def test_a_full_disk_is_an_error_of_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "boyd_cli", "plugins", "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    error = "boyd: standard output or a file cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, error)


def test_an_argument_that_is_not_utf8_is_an_error_of_one_line() -> None:
    command: list[str | bytes] = [sys.executable, "-m", "boyd_cli", "incidents", b"caf\xe9"]
    here = {**os.environ, "BOYD_URL": "http://127.0.0.1:9", "BOYD_API_KEY": "any"}
    done = subprocess.run(command, env=here, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (2, "boyd: 'caf\\udce9' is not UTF-8\n")


def test_an_error_caused_by_ctrl_c_counts_as_an_interrupt() -> None:
    error = RuntimeError("Error calling __set_name__")
    error.__cause__ = KeyboardInterrupt()
    assert is_interrupt(error)
    assert not is_interrupt(RuntimeError("something else"))


def test_a_program_that_handles_sigint_itself_keeps_its_handler() -> None:
    import signal

    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        with Importing():
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT]


def test_every_public_name_is_found_when_it_is_first_used() -> None:
    program = "import boyd\nprint([n for n in boyd.__all__ if not callable(getattr(boyd, n))])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_the_version_is_printed_without_importing_models() -> None:
    program = (
        "import sys\nsys.argv = ['boyd', '--version']\nimport boyd_cli\n"
        "try:\n    boyd_cli.main()\nexcept SystemExit:\n    pass\n"
        "print(*[name for name in ('pydantic', 'redis', 'rich', 'boyd.models') if name in"
        " sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.startswith("boyd, version ")
    assert done.stderr.strip() == ""
