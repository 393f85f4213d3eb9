"""The blocks of code of the deployment guide, and hosts on which they run as they are."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil
import pytest

from connection_kit import program
from harness import server_program, wait_until

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "deployment.md"
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


def blocks() -> list[Block]:
    """The blocks of code of the guide, in order."""
    heading, listed = "", []
    for match in _BLOCK.finditer(GUIDE.read_text(encoding="utf-8")):
        if match[1]:
            heading = match[1]
        else:
            listed.append(Block(heading, match[2]))
    return listed


def block(heading: str, marker: str = "") -> str:
    """The only block below a heading with the marker in it."""
    [text] = [
        written.text
        for written in blocks()
        if written.heading == heading and marker in written.text
    ]
    return text


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
            asked = [*self._enter, "systemctl", "is-system-running"]
        except (IndexError, psutil.NoSuchProcess):
            return False
        return subprocess.run(asked, capture_output=True, text=True).stdout == "running\n"

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
        made = Host(self._folder, self._namespace, name)
        self._hosts.append(made)
        wait_until(made.is_up, 30)
        return made

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
    made = Hosts(folder)
    try:
        yield made
    finally:
        made.end()
