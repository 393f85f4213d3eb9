"""The blocks of code of a page of the documentation, and hosts on which they run as they are."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil
import pytest

from connection_kit import program
from harness import server_program, wait_until

ROOT = Path(__file__).parents[2]
START = ROOT / "tests" / "data" / "hosts" / "start-host"
#: What a host needs, tried in namespaces that end with it.
TRIAL = """
mount -t tmpfs none /mnt
cd /mnt
mkdir upper work root groups
mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work none root
mount -t cgroup2 none groups
mkdir groups/boyd-$$
rmdir groups/boyd-$$
"""
_BLOCK = re.compile(r"^#+ ([^\n]+)$|^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of code, and the heading above it."""

    heading: str
    text: str


class Guide:
    """A page of the documentation whose blocks of code are run."""

    def __init__(self, name: str) -> None:
        self.text = (ROOT / "docs" / name).read_text(encoding="utf-8")

    def blocks(self) -> list[Block]:
        """The blocks of code of the page, in order."""
        heading, listed = "", []
        for match in _BLOCK.finditer(self.text):
            if match[1]:
                heading = match[1]
            else:
                listed.append(Block(heading, match[2]))
        return listed

    def block(self, heading: str, marker: str = "") -> str:
        """The only block below a heading with the marker in it."""
        [text] = [
            written.text
            for written in self.blocks()
            if written.heading == heading and marker in written.text
        ]
        return text

    def check_runs(self, runs: Mapping[tuple[str, str], str]) -> None:
        """Check that each block is in a table, by heading and marker, with a test that exists."""

        def key_of(written: Block) -> tuple[str, str] | str:
            keys = (key for key in runs if key[0] == written.heading and key[1] in written.text)
            return next(keys, written.text)

        assert [key_of(written) for written in self.blocks()] == list(runs)
        for runner in runs.values():
            for path, test in re.findall(r"(tests/[\w/]+\.py)::(\w+)", runner):
                assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), runner


def steps(session: str) -> list[tuple[str, str]]:
    """The commands of a session with `$` before each, and what it shows below them."""
    lines = session.replace("\\\n", "")
    return re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", lines, re.MULTILINE)


def shows(printed: str, example: str) -> bool:
    """Match lines with those of an example: … is anything, a number any, blanks count once."""
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    patterns = [_pattern(" ".join(line.split())) for line in example.splitlines()]
    return all(any(re.fullmatch(pattern, line) for line in lines) for pattern in patterns)


def _pattern(line: str) -> str:
    parts = re.split(r"(…|\d+(?:\.\d+)*)", line)
    variable = [".*" if part == "…" else r"\d+(?:\.\d+)*" for part in parts]
    return "".join(variable[n] if n % 2 else re.escape(part) for n, part in enumerate(parts))


class Reader:
    """A person who types what a page shows, in a shell that remembers what it exports."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        (folder / "exports").touch()

    def type(self, script: str) -> str:
        """Run commands of the shell; their output."""
        boyd = f'boyd() {{ "{sys.executable}" -m boyd_cli "$@"; }}'
        done = subprocess.run(
            ["bash", "-c", f"set -e\n. ./exports\n{boyd}\n{script}\nexport -p > exports"],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.fail(f"{script}\n{done.stdout}{done.stderr}")
        return done.stdout

    def follow(self, session: str) -> str:
        """Type the commands of a session, again until they print what it shows; what they did."""
        return "".join(self._repeat(*step) for step in steps(session))

    def _repeat(self, command: str, example: str) -> str:
        printed = ""

        def fits() -> bool:
            nonlocal printed
            printed = self.type(command)
            return shows(printed, example)

        try:
            wait_until(fits)
        except AssertionError:
            raise AssertionError(f"{command}\n{printed}\ninstead of\n{example}") from None
        return printed


class Host:
    """A host: a systemd of its own on a copy of this machine's files, which goes with it."""

    def __init__(self, folder: Path, namespace: str, name: str) -> None:
        self.name = name
        root = folder / name
        root.mkdir()
        packages = sysconfig.get_paths()["purelib"]
        parts = (sys.base_prefix, packages, ROOT, server_program())
        with (folder / f"{name}.log").open("w") as output:
            self._process = subprocess.Popen(
                ["ip", "netns", "exec", namespace, "sh", START, root, name, *parts],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def run(self, script: str) -> str:
        """Run a script of the shell in the project's folder; its output."""
        done = subprocess.run(
            [*self._enter, "bash", "-c", f"set -e\n{script}"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{self.name}: {script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def is_up(self) -> bool:
        """Check that it has booted; fails if it never will."""
        assert self._process.poll() is None, f"{self.name} did not start"
        try:
            command = [*self._enter, "systemctl", "is-system-running"]
        except (IndexError, psutil.NoSuchProcess):
            return False
        return subprocess.run(command, capture_output=True, text=True).stdout == "running\n"

    def copy_to(self, other: Self, *files: str) -> None:
        """Copy files to the same folders of another host."""
        packed = subprocess.run([*self._enter, "tar", "-c", *files], stdout=-1, check=True).stdout
        subprocess.run([*other._enter, "tar", "-x"], input=packed, check=True)

    def end(self) -> None:
        """Switch it off."""
        self._process.terminate()
        self._process.wait()

    @property
    def _enter(self) -> list[str]:
        pid = psutil.Process(self._process.pid).children()[0].children()[0].pid
        spaces = ("--mount", "--pid", "--cgroup", "--uts", "--ipc", "--net", "--root")
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        alone = ["env", "-i", "-C", "/opt/project", "HOME=/root", f"PATH={path}"]
        return ["nsenter", f"--target={pid}", *spaces, *alone]


class Hosts:
    """Hosts in a network that they share, with all addresses that the guide names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._namespace = f"boyd-guide-{os.getpid()}"
        self._hosts: list[Host] = []
        ip = ("ip", "-n", self._namespace)
        subprocess.run(["ip", "netns", "add", self._namespace], check=True)
        subprocess.run([*ip, "link", "set", "lo", "up"], check=True)
        subprocess.run([*ip, "address", "add", "10.0.0.5/32", "dev", "lo"], check=True)

    def add(self, name: str) -> Host:
        """Start another host."""
        host = Host(self._folder, self._namespace, name)
        self._hosts.append(host)
        wait_until(host.is_up, 30)
        return host

    def end(self) -> None:
        """Switch all off."""
        for host in self._hosts:
            host.end()
        subprocess.run(["ip", "netns", "del", self._namespace], check=True)


@contextmanager
def hosts(folder: Path) -> Iterator[Hosts]:
    """Hosts until the end of the block; without what they need the test is skipped."""
    program("systemctl", "systemd")
    tried = subprocess.run(
        ["unshare", "--mount", "--pid", "--cgroup", "--net", "--fork", "sh", "-ec", TRIAL],
        capture_output=True,
        check=False,
    )
    if os.getuid() or tried.returncode or shutil.which("ip") is None:
        pytest.skip("hosts need root, `ip`, namespaces, an overlay on / and cgroups of their own")
    new_hosts = Hosts(folder)
    try:
        yield new_hosts
    finally:
        new_hosts.end()
