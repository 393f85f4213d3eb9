"""Runs of `ansible-playbook`: the process, what it is given, and what it may not do."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boyd.plugin import Secret
from boyd.plugins.command import CommandFailed, CompletedCommand, run
from boyd.text.redaction import clean
from boyd_connectors.ansible.host_reports import PlaybookReport, read_events
from boyd_connectors.ansible.playbook_options import AnsibleAccess
from boyd_connectors.ansible.project_files import AnsibleFailure

#: The playbook that gathers facts.
FACTS = Path(__file__).with_name("facts.yml")
_CALLBACKS = Path(__file__).with_name("callback_plugins")
#: Variables that are passed on; those of a worker hold secrets.
_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "TZ", "SSH_AUTH_SOCK")
#: Seconds to end after it was told to, to ask for the inventory, and between signs of life.
GRACE, INVENTORY_TIME, ALIVE = 5.0, 60.0, 5
#: The most bytes of an inventory.
MAX_INVENTORY = 16_777_216


@dataclass(frozen=True)
class AnsibleSettings:
    """The settings of all runs; times in seconds."""

    project: Path
    inventory: Path
    bin_dir: Path | None
    known_hosts: Path | None
    forks: int
    connect_timeout: float
    task_timeout: float


@dataclass(frozen=True)
class PlaybookRun:
    """A run to be made, of a file in the project, on hosts or groups of the inventory."""

    file: str | Path
    hosts: Sequence[str]
    variables: Mapping[str, Any] = field(default_factory=dict)
    check: bool = False
    facts: bool = False
    timeout: float = 600.0


@dataclass(frozen=True)
class CompletedRun:
    """A run and its report; *trouble* tells why Ansible did not end it as it should."""

    report: PlaybookReport
    trouble: str = ""


class AnsibleRunner:
    """Runs Ansible with *settings* and the credentials *access*."""

    def __init__(self, settings: AnsibleSettings, access: AnsibleAccess) -> None:
        self._settings = settings
        self._access = access

    def run(self, wanted: PlaybookRun, keep: Sequence[int] = ()) -> CompletedRun:
        """Run a playbook, which inherits the file descriptors *keep*.

        Raises:
            AnsibleFailure: it cannot be started.
            ConfigError: a secret cannot be read.
        """
        with tempfile.TemporaryDirectory(prefix="boyd") as name:
            folder, events = Path(name), Path(name) / "events"
            given = folder / "variables.json"
            given.write_text(json.dumps({**wanted.variables, **self._connection(folder)}))
            arguments = [
                *("--limit", ",".join(wanted.hosts), "--forks", str(self._settings.forks)),
                *("--extra-vars", f"@{given}"),
                *(("--check", "--diff") if wanted.check else ("--diff",)),
            ]
            env = {"BOYD_ANSIBLE_EVENTS": str(events)}
            if wanted.facts:
                env["BOYD_ANSIBLE_FACTS"] = "1"
            trouble = ""
            try:
                ended = self._call(
                    ["ansible-playbook", *arguments, "--", str(wanted.file)],
                    wanted.timeout,
                    folder,
                    env,
                    keep,
                )
                trouble = _trouble(ended)
            except CommandFailed as error:
                if not events.exists():
                    raise AnsibleFailure(clean(str(error))) from None
                trouble = clean(str(error))
            return CompletedRun(read_events(events), trouble)

    def inventory(self) -> dict[str, set[str]]:
        """The hosts of each host and group of the inventory.

        Raises:
            AnsibleFailure: it cannot be read.
        """
        with tempfile.TemporaryDirectory(prefix="boyd") as name:
            output = Path(name) / "inventory"
            argv = ["ansible-inventory", "--list", "--output", str(output)]
            try:
                ended = self._call(argv, INVENTORY_TIME, Path(name), {})
            except CommandFailed as error:
                raise AnsibleFailure(clean(str(error))) from None
            if ended.code or not output.exists():
                raise AnsibleFailure(f"the inventory cannot be read: {clean(ended.output)}")
            if output.stat().st_size > MAX_INVENTORY:
                raise AnsibleFailure(f"the inventory is larger than {MAX_INVENTORY} bytes")
            groups = json.loads(output.read_bytes())
        groups.pop("_meta", None)
        found = {name: _members(groups, name, set()) for name in groups}
        return {host: {host} for host in found.get("all", ())} | found

    def _call(
        self,
        argv: list[str],
        timeout: float,
        folder: Path,
        env: Mapping[str, str],
        keep: Sequence[int] = (),
    ) -> CompletedCommand:
        settings = self._settings
        program = shutil.which(argv[0], path=settings.bin_dir and str(settings.bin_dir))
        if program is None:
            where = settings.bin_dir or "the PATH of this worker"
            raise AnsibleFailure(f"{argv[0]} is not in {where}: install ansible-core")
        if not settings.project.is_dir():
            raise AnsibleFailure(f"{settings.project}: is no folder on this worker")
        secrets = {"--vault-password-file": self._access.vault_password}
        if argv[0] == "ansible-playbook":
            secrets["--become-password-file"] = self._access.become_password
        with _piped(secrets) as (words, pipes):
            full = [program, "--inventory", str(settings.inventory), *words, *argv[1:]]
            env = {**self._environment(folder), **env}
            keep = [*keep, *pipes]
            return run(full, timeout, settings.project, env, keep=keep, grace=GRACE)

    def _environment(self, folder: Path) -> dict[str, str]:
        settings = self._settings
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        return {
            **inherited,
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_CALLBACK_PLUGINS": str(_CALLBACKS),
            "ANSIBLE_STDOUT_CALLBACK": "boyd_events",
            "ANSIBLE_DISPLAY_ARGS_TO_STDOUT": "0",
            "ANSIBLE_HOST_KEY_CHECKING": "1",
            "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_RETRY_FILES_ENABLED": "0",
            # A task whose connection was lost may have run.
            "ANSIBLE_SSH_RETRIES": "0",
            "ANSIBLE_TASK_TIMEOUT": str(int(settings.task_timeout)),
            "ANSIBLE_TIMEOUT": str(int(settings.connect_timeout)),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def _connection(self, folder: Path) -> dict[str, str]:
        """Variables that count more than those of the inventory."""
        settings, access = self._settings, self._access
        words = [
            *("BatchMode=yes", "StrictHostKeyChecking=yes"),
            *(f"ServerAliveInterval={ALIVE}", "ServerAliveCountMax=3"),
            # In this run only: another one may have other credentials.
            *("ControlMaster=auto", "ControlPersist=15s", f"ControlPath={folder}/%C"),
        ]
        if settings.known_hosts:
            words += [f"UserKnownHostsFile={settings.known_hosts}"]
            words += ["GlobalKnownHostsFile=/dev/null"]
        if access.private_key:
            words.append("IdentitiesOnly=yes")
        found = {"ansible_ssh_args": " ".join(f"-o {shlex.quote(word)}" for word in words)}
        if access.user:
            found["ansible_user"] = access.user
        if access.private_key:
            found["ansible_ssh_private_key_file"] = str(access.private_key)
        return found


@contextmanager
def _piped(secrets: Mapping[str, Secret | None]) -> Iterator[tuple[list[str], list[int]]]:
    """Options that name pipes with the secrets, which thereby are in no file and no argument."""
    words: list[str] = []
    pipes: list[int] = []
    try:
        for option, secret in secrets.items():
            if secret is None:
                continue
            reading, writing = os.pipe()
            pipes.append(reading)
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(secret.read().encode())
            words += [option, f"/dev/fd/{reading}"]
        yield words, pipes
    finally:
        for one in pipes:
            os.close(one)


def _trouble(ended: CompletedCommand) -> str:
    """The reason if a run ended in another way than with failed or unreachable hosts."""
    if ended.code in (0, 2, 4, 6, 8):
        return ""
    how = f"was killed by signal {-ended.code}" if ended.code < 0 else f"ended with {ended.code}"
    return clean(f"ansible-playbook {how}: {ended.output}").strip(": ")


def _members(groups: Mapping[str, Any], name: str, seen: set[str]) -> set[str]:
    if name in seen:
        return set()
    seen.add(name)
    group = groups.get(name, {})
    found = set(group.get("hosts", ()))
    return found.union(*(_members(groups, one, seen) for one in group.get("children", ())))
