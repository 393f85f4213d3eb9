"""Runs of `ansible-playbook`: the process, its reports per host, and the conclusions from them."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from boyd.models import EffectVerdict, JsonObject
from boyd.plugin import Secret
from boyd.plugins.command import CommandFailed, CompletedCommand, run
from boyd.text.redaction import clean
from boyd_connectors.ansible.playbook_options import AnsibleAccess, AnsibleFailure

#: The most bytes of events that are read, changes that are reported, and hosts with their details.
MAX_EVENTS, MAX_CHANGES, MAX_HOSTS = 8_000_000, 50, 200

HostState = Literal["unchanged", "changed", "failed", "unreachable", "unfinished"]


@dataclass
class HostReport:
    """The events of a playbook on one host.

    Attributes:
        changes: tasks with their differences.
        left_out: tasks that check mode skips.
        ran: tasks that changed something although only check mode was asked for.
        late: whether it was lost, or a task ran out of time, after others had begun.
        counts: those of Ansible's recap; None if the playbook did not end.
    """

    changes: list[JsonObject] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    error: str = ""
    unreachable: bool = False
    late: bool = False
    facts: JsonObject = field(default_factory=dict)
    counts: Mapping[str, int] | None = None

    @property
    def state(self) -> HostState:
        """The state in which it ended."""
        if self.unreachable:
            return "unreachable"
        if self.counts is None:
            return "failed" if self.error else "unfinished"
        if self.counts.get("failures"):
            return "failed"
        return "changed" if self.counts.get("changed") or self.changes else "unchanged"

    def details(self) -> JsonObject:
        """All but its state and facts."""
        result: dict[str, Any] = {}
        if self.changes:
            result["changes"] = list(self.changes[:MAX_CHANGES])
        if len(self.changes) > MAX_CHANGES:
            result["moreChanges"] = len(self.changes) - MAX_CHANGES
        for name, tasks in (("notPreviewed", self.left_out), ("ranInCheckMode", self.ran)):
            if tasks:
                result[name] = list(dict.fromkeys(tasks))[:MAX_CHANGES]
        if self.error and self.state != "unchanged":
            result["error"] = self.error
        return result


@dataclass
class PlaybookReport:
    """The reports of all hosts, by name; `has_ended` is false if the playbook was cut off."""

    hosts: dict[str, HostReport]
    has_ended: bool

    def names(self, *states: HostState) -> list[str]:
        """The hosts in one of *states*."""
        return sorted(name for name, host in self.hosts.items() if host.state in states)

    def output(self) -> JsonObject:
        """The states of all hosts, with the details of the first that have any.

        Hosts with the same details share an entry.
        """
        states: dict[str, list[str]] = defaultdict(list)
        alike: dict[str, list[str]] = defaultdict(list)
        for number, (name, host) in enumerate(sorted(self.hosts.items())):
            # Of all, as a rollback runs on those that were changed.
            states[host.state].append(name)
            if number < MAX_HOSTS and (details := host.details()):
                alike[json.dumps(details, sort_keys=True)].append(name)
        result: dict[str, Any] = {"hosts": dict(states)}
        if len(self.hosts) > MAX_HOSTS:
            result["hostsWithoutDetails"] = len(self.hosts) - MAX_HOSTS
        result["details"] = [{"hosts": names, **json.loads(text)} for text, names in alike.items()]
        return result


def read_events(path: Path) -> PlaybookReport:
    """The report that the callback's events make; lines that were cut are left out."""
    hosts: dict[str, HostReport] = defaultdict(HostReport)
    has_ended = False
    for event in _events(path):
        kind = event.get("event")
        if kind == "ended":
            has_ended = True
            for name, counts in event["hosts"].items():
                hosts[name].counts = counts
        else:
            _note(hosts[event["host"]], kind, event)
    return PlaybookReport(dict(hosts), has_ended)


def _note(host: HostReport, kind: str | None, event: Mapping[str, Any]) -> None:
    task = clean(event.get("task", ""))
    if kind == "changed":
        diff = clean(event["diff"])
        host.changes.append({"task": task, "diff": diff} if diff else {"task": task})
    elif kind == "left out":
        host.left_out.append(task)
    elif kind == "ran":
        host.ran.append(task)
    elif kind == "facts":
        host.facts = event["facts"]
    elif kind in ("failed", "unreachable"):
        host.error = clean(f"{task}: {event['error']}")
        host.unreachable = kind == "unreachable"
        host.late = host.late or event["late"]


def _events(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines.read(MAX_EVENTS).splitlines():
            try:
                yield json.loads(line)
            except ValueError:  # it was killed while it wrote
                continue


#: The most names of hosts in a line.
SHOWN = 20


def preview_of(run: CompletedRun) -> JsonObject:
    """The changes that check mode reports, and what it cannot know, by host."""
    report = run.report
    states: dict[str, list[str]] = {}
    for name, host in sorted(report.hosts.items()):
        state = {"changed": "would change", "unchanged": "would not change"}.get(host.state)
        if state is None or run.trouble:
            state = "unreachable" if host.unreachable else "check mode failed"
        elif host.left_out and not host.changes:
            state = "cannot know"
        states.setdefault(state, []).append(name)
    preview: dict[str, Any] = {"hosts": states, "details": report.output()["details"]}
    if any(host.left_out for host in report.hosts.values()):
        preview["note"] = "check mode cannot know what the tasks in notPreviewed do"
    if run.trouble:
        preview["error"] = run.trouble
    return preview


def verdict_by_playbook(playbook: str, run: CompletedRun) -> EffectVerdict:
    """The verdict of the *playbook* that verifies it: effective if it succeeded on all hosts."""
    report = run.report
    if run.trouble or not report.hosts or report.names("unreachable", "unfinished"):
        return _cannot_tell(run)
    if report.names("failed"):
        says = f"{playbook}: {'; '.join(troubles(report))}"
        return EffectVerdict(verdict="no effect", evidence=says, final=False)
    says = f"{playbook} succeeded on {join_names(sorted(report.hosts))}"
    return EffectVerdict(verdict="effective", evidence=says)


def verdict_by_check_mode(run: CompletedRun) -> EffectVerdict:
    """The verdict of check mode: effective if it would change nothing, and can know.

    A task that reports a change without a difference, such as a restart, may always do so: then it
    cannot tell.
    """
    report = run.report
    if run.trouble or not report.hosts or report.names("failed", "unreachable", "unfinished"):
        return _cannot_tell(run)
    hosts = report.hosts.items()
    differ = [name for name, host in hosts if any("diff" in change for change in host.changes)]
    if differ:
        says = f"check mode still shows differences on {join_names(sorted(differ))}"
        return EffectVerdict(verdict="no effect", evidence=says, final=False)
    again = [name for name, host in hosts if host.changes or host.left_out or host.ran]
    if again:
        says = (
            f"check mode cannot know for {join_names(sorted(again))}; give the playbook a `verify`"
        )
        return EffectVerdict(verdict="cannot tell", evidence=says)
    says = f"check mode would change nothing on {join_names(report.names('unchanged'))}"
    return EffectVerdict(verdict="effective", evidence=says)


def _cannot_tell(run: CompletedRun) -> EffectVerdict:
    says = "; ".join(filter(None, [run.trouble, *troubles(run.report)]))
    return EffectVerdict(verdict="cannot tell", evidence=says or "it matched no host", final=False)


def troubles(report: PlaybookReport) -> Iterator[str]:
    """The hosts in trouble, each with the reason."""
    for name in report.names("failed", "unreachable", "unfinished")[:SHOWN]:
        host = report.hosts[name]
        yield f"{name} {host.state}{': ' if host.error else ''}{host.error[:200]}"


def join_names(names: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


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

    def run(self, request: PlaybookRun, keep: Sequence[int] = ()) -> CompletedRun:
        """Run a playbook, which inherits the file descriptors *keep*.

        Raises:
            AnsibleFailure: it cannot be started.
            ConfigError: a secret cannot be read.
        """
        with tempfile.TemporaryDirectory(prefix="boyd") as name:
            folder, events = Path(name), Path(name) / "events"
            variables_file = folder / "variables.json"
            variables_file.write_text(json.dumps({**request.variables, **self._connection(folder)}))
            arguments = [
                *("--limit", ",".join(request.hosts), "--forks", str(self._settings.forks)),
                *("--extra-vars", f"@{variables_file}"),
                *(("--check", "--diff") if request.check else ("--diff",)),
            ]
            env = {"BOYD_ANSIBLE_EVENTS": str(events)}
            if request.facts:
                env["BOYD_ANSIBLE_FACTS"] = "1"
            trouble = ""
            try:
                result = self._call(
                    ["ansible-playbook", *arguments, "--", str(request.file)],
                    request.timeout,
                    folder,
                    env,
                    keep,
                )
                trouble = _trouble(result)
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
                result = self._call(argv, INVENTORY_TIME, Path(name), {})
            except CommandFailed as error:
                raise AnsibleFailure(clean(str(error))) from None
            if result.code or not output.exists():
                raise AnsibleFailure(f"the inventory cannot be read: {clean(result.output)}")
            if output.stat().st_size > MAX_INVENTORY:
                raise AnsibleFailure(f"the inventory is larger than {MAX_INVENTORY} bytes")
            groups = json.loads(output.read_bytes())
        groups.pop("_meta", None)
        members = {name: _members(groups, name, set()) for name in groups}
        return {host: {host} for host in members.get("all", ())} | members

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
        with _secret_pipes(secrets) as (words, pipes):
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
        variables = {"ansible_ssh_args": " ".join(f"-o {shlex.quote(word)}" for word in words)}
        if access.user:
            variables["ansible_user"] = access.user
        if access.private_key:
            variables["ansible_ssh_private_key_file"] = str(access.private_key)
        return variables


@contextmanager
def _secret_pipes(secrets: Mapping[str, Secret | None]) -> Iterator[tuple[list[str], list[int]]]:
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
        for descriptor in pipes:
            os.close(descriptor)


def _trouble(command: CompletedCommand) -> str:
    """The error of a run that ended otherwise than with failed or unreachable hosts, if it did."""
    if command.code in (0, 2, 4, 6, 8):
        return ""
    outcome = (
        f"was killed by signal {-command.code}"
        if command.code < 0
        else f"ended with {command.code}"
    )
    return clean(f"ansible-playbook {outcome}: {command.output}").strip(": ")


def _members(groups: Mapping[str, Any], name: str, visited: set[str]) -> set[str]:
    if name in visited:
        return set()
    visited.add(name)
    group = groups.get(name, {})
    hosts = set(group.get("hosts", ()))
    return hosts.union(*(_members(groups, child, visited) for child in group.get("children", ())))
