"""A real systemd of a user with a real journal, in namespaces of their own: as PID 1 is another."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from connection_kit import program
from harness import wait_until

#: Run as root in its own mount and cgroup namespaces: what systemd and journald look for is there.
_START = """
set -e
mkdir -p /run/systemd /run/log
mount -t tmpfs none /run/systemd && mkdir -p /run/systemd/system /run/systemd/journald.conf.d
printf '[Journal]\\nReadKMsg=no\\nRateLimitBurst=0\\n' > /run/systemd/journald.conf.d/test.conf
mount -t tmpfs none /run/log && mkdir /run/log/journal && mount --bind "$1/journal" /run/log/journal
umount -l /sys/fs/cgroup/* 2> /dev/null || true
umount -l /sys/fs/cgroup 2> /dev/null || true
mount -t cgroup2 none /sys/fs/cgroup
all=/sys/fs/cgroup/boyd$$.slice
own=$all/user@0.service/init.scope
mkdir -p "$own" && echo $$ > "$own/cgroup.procs"
trap 'find $all -name cgroup.procs -exec cat {} + | xargs kill -KILL' TERM
/lib/systemd/systemd-journald &
while ! [ -S /run/systemd/journal/stdout ]; do sleep 0.05; done
while :; do
  rm -rf "$XDG_RUNTIME_DIR/systemd"
  /lib/systemd/systemd --user --log-target=journal &
  while ! [ -e "$1/down" ]; do sleep 0.05; done
  kill -KILL $!
  rm -f "$XDG_RUNTIME_DIR/bus"
  wait $! || touch "$1/killed"
  while [ -e "$1/down" ]; do sleep 0.05; done
done
"""


class UserSystemd:
    """A running systemd of a user; `environment` has its clients find it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.journal = folder / "journal"
        self.environment = {"XDG_RUNTIME_DIR": str(folder / "run")}

    def unit(self, name: str, script: str, *lines: str) -> None:
        """Make a unit that runs a script of the shell."""
        text = "\n".join(["[Service]", *lines, f"ExecStart=/bin/sh -c '{script}'", ""])
        (self._folder / "home/.config/systemd/user" / name).write_text(text)
        self.control("daemon-reload")

    def control(self, *arguments: str) -> str:
        """Run `systemctl --user` and return its output."""
        done = subprocess.run(
            ["systemctl", "--user", *arguments],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
        )
        return done.stdout.strip() or done.stderr.strip()

    def state(self, name: str) -> str:
        """The state of a unit."""
        return self.control("is-active", name)

    def kill(self) -> None:
        """Kill the manager; it comes back with `start`."""
        (self._folder / "down").touch()
        wait_until((self._folder / "killed").exists)

    def start(self) -> None:
        """Have the manager come back after `kill`."""
        for name in ("killed", "down"):
            (self._folder / name).unlink(missing_ok=True)
        wait_until(lambda: self.control("is-active", "default.target") == "active")


@contextmanager
def user_systemd(folder: Path) -> Iterator[UserSystemd]:
    """Start one; without root, or where namespaces are not permitted, the test is skipped."""
    program("systemctl", "systemd")
    tried = subprocess.run(
        ["unshare", "--mount", "--cgroup", "true"], capture_output=True, check=False
    )
    if os.getuid() or tried.returncode:
        pytest.skip("starting a systemd needs root, and permission to make namespaces")
    for name in ("journal", "run", "home/.config/systemd/user"):
        (folder / name).mkdir(parents=True, mode=0o700)
    served = UserSystemd(folder)
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(
            ["unshare", "--mount", "--cgroup", "sh", "-c", _START, "sh", str(folder)],
            env={**os.environ, **served.environment, "HOME": str(folder / "home")},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        served.start()
        yield served
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
