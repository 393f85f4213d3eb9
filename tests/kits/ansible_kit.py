"""Real hosts for Ansible: an sshd for each on this machine, which are told apart by their ports."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from connection_kit import program
from harness import free_port, wait_until
from signals import signal_process

_SSHD = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/key
AuthorizedKeysFile {authorized}
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PidFile none
"""
#: Fewer connections make the tests quicker.
_CONFIG = """
[defaults]
interpreter_python = /usr/bin/python3
[connection]
pipelining = true
"""


class SshHost:
    """A host: an sshd with a key of its own, and a folder for what playbooks change."""

    def __init__(self, name: str, folder: Path, authorized: Path) -> None:
        self.name, self.folder, self.port = name, folder, free_port()
        folder.mkdir()
        make_key(folder / "key")
        config = _SSHD.format(port=self.port, folder=folder, authorized=authorized)
        (folder / "sshd_config").write_text(config)
        self._argv = [program("sshd", "openssh-server"), "-D", "-f", f"{folder}/sshd_config"]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def known_hosts_line(self) -> str:
        """Its line in a file of known hosts."""
        return f"[127.0.0.1]:{self.port} {(self.folder / 'key.pub').read_text()}"

    def start(self) -> None:
        """Start its sshd, and wait until it listens."""
        self._process = subprocess.Popen(
            self._argv, stderr=subprocess.DEVNULL, start_new_session=True
        )
        wait_until(self._listens)

    def kill(self) -> None:
        """Kill its sshd and all sessions."""
        if self._process is None:
            return
        for pid in (self._process.pid, *_descendants(self._process.pid)):
            with suppress(ProcessLookupError):  # a session ends with its server
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def stop(self, signal_number: int = signal.SIGSTOP) -> None:
        """Stop it, so that it hangs, or continue it."""
        assert self._process is not None
        for pid in (self._process.pid, *_descendants(self._process.pid)):
            signal_process(pid, signal_number)

    def _listens(self) -> bool:
        with socket.socket() as line:
            return line.connect_ex(("127.0.0.1", self.port)) == 0


class Fleet:
    """Hosts, and a project with an inventory of them and a key to log in with."""

    def __init__(self, folder: Path, names: tuple[str, ...]) -> None:
        self.project = folder / "project"
        self.project.mkdir()
        self.key, self.known_hosts = folder / "client", folder / "known_hosts"
        make_key(self.key)
        authorized = folder / "client.pub"
        self.hosts = {name: SshHost(name, folder / name, authorized) for name in names}
        lines = [
            f"{host.name} ansible_host=127.0.0.1 ansible_port={host.port} folder={host.folder}"
            for host in self.hosts.values()
        ]
        self.write("inventory", "\n".join(["[web]", *lines, ""]))
        self.write(
            "ansible.cfg",
            "[defaults]\ninterpreter_python = /usr/bin/python3\n[connection]\npipelining = true\n",
        )
        self.known_hosts.write_text("".join(host.known_hosts_line for host in self.hosts.values()))

    def write(self, name: str, text: str) -> None:
        """Write a file of the project."""
        (self.project / name).write_text(text)

    def options(self, **more: Any) -> dict[str, Any]:
        """Options of the plugin."""
        return {
            "project": str(self.project),
            "known_hosts": str(self.known_hosts),
            "access": {"private_key": str(self.key)},
            "connect_timeout": 10,
            **more,
        }

    def read(self, host: str, name: str) -> str | None:
        """The content of a file in the folder of a host."""
        path = self.hosts[host].folder / name
        return path.read_text() if path.exists() else None


@contextmanager
def fleet(*names: str) -> Iterator[Fleet]:
    """A fleet of hosts that run."""
    program("ansible-playbook", "ansible-core")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="fleet"))
    new_fleet = Fleet(folder, names)
    try:
        for host in new_fleet.hosts.values():
            host.start()
        yield new_fleet
    finally:
        for host in new_fleet.hosts.values():
            host.kill()
        shutil.rmtree(folder)


def make_key(path: Path) -> None:
    """Make a pair of keys."""
    argv = [
        program("ssh-keygen", "openssh-client"),
        "-q",
        "-t",
        "ed25519",
        "-N",
        "",
        "-f",
        f"{path}",
    ]
    subprocess.run(argv, check=True)


def _descendants(pid: int) -> list[int]:
    children = []
    with suppress(OSError):  # it ends meanwhile
        children = [
            int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    return [*children, *(descendant for child in children for descendant in _descendants(child))]
