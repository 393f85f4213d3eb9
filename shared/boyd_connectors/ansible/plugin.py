"""The plugin `ansible`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from boyd.models import ActionResult, Autonomy, EffectVerdict, JsonObject, Model, Observation
from boyd.models.effect import EffectChecks
from boyd.plugin import Action, Connector, Context, Observer, tool
from boyd.plugins.results import uncertain
from boyd.text.redaction import redactor
from boyd_connectors.ansible.playbook_options import (
    AnsibleAccess,
    AnsibleFailure,
    AnsiblePlaybook,
    HostName,
    PlaybookParams,
    digest_of,
    running_lock,
)
from boyd_connectors.ansible.playbook_run import (
    FACTS,
    AnsibleRunner,
    AnsibleSettings,
    CompletedRun,
    PlaybookReport,
    PlaybookRun,
    join_names,
    preview_of,
    troubles,
    verdict_by_check_mode,
    verdict_by_playbook,
)
from boyd_connectors.connector_parts import CheckReport

ActionName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
#: Seconds beyond those of a playbook, for the inventory, a check of its hosts and its end.
MARGIN = 75.0
#: Seconds of these for which a rollback waits until no other playbook runs.
ROLLBACK_PATIENCE = 40.0


class HostParams(Model):
    """A host or group of the inventory."""

    hosts: HostName


class ProjectOptions(Connector.Options):
    """The folder with playbooks, and how they run; times in seconds.

    Attributes:
        project: the folder with playbooks and roles; the agent file's folder is the base.
        inventory: a file or folder, relative to `project`.
        access: credentials to gather facts and to look for drift.
        known_hosts: the file with the hosts' keys; none: those of the worker's user.
        bin_dir: the folder of `ansible-playbook`; none: the PATH.
        forks: how many hosts are worked on at once.
        connect_timeout: until a host has to answer.
        task_timeout: that a task may take on a host.
        unpinned: patterns of the names of files that may change after an approval.
    """

    project: Path
    inventory: Path = Path("inventory")
    access: AnsibleAccess = AnsibleAccess()
    known_hosts: Path | None = None
    bin_dir: Path | None = None
    forks: int = Field(default=5, ge=1, le=50)
    connect_timeout: float = Field(default=10.0, ge=1, le=60)
    task_timeout: float = Field(default=120.0, ge=1, le=3600)
    unpinned: list[str] = Field(default=["*.retry", "*.log", "*.pyc"])


class Ansible(Connector):
    """Gathers facts of hosts with Ansible, looks for drift, and runs playbooks."""

    id = "ansible"

    class Options(ProjectOptions):
        """The plugin's options; times in seconds.

        Attributes:
            hosts: the host or group whose facts are gathered.
            facts: names or patterns of facts to observe.
            gather_subset: as in Ansible's module `setup`.
            interval: between two looks at facts.
            drift_interval: between two looks for drift.
            observe_timeout: that a look may take.
            queue: the queue of the workers that have the project and reach the hosts.
            max_items: the most things that are reported one by one.
            playbooks: those that can be previewed, by name.
            actions: the playbooks that can be run, by name, with their credentials.
        """

        hosts: HostName = "all"
        facts: list[str] = Field(
            default=["distribution", "distribution_version", "kernel", "architecture"],
            max_length=50,
        )
        gather_subset: list[str] = Field(default=["min"], max_length=20)
        interval: float = Field(default=300.0, gt=0)
        drift_interval: float = Field(default=3600.0, gt=0)
        observe_timeout: float = Field(default=120.0, gt=0, le=3600)
        queue: str | None = None
        max_items: int = Field(default=20, ge=1, le=200)
        playbooks: dict[ActionName, AnsiblePlaybook] = Field(default_factory=dict)
        actions: dict[ActionName, AnsibleAccess] = Field(default_factory=dict)

        @model_validator(mode="after")
        def _check_actions(self) -> Self:
            if unknown := self.actions.keys() - self.playbooks.keys():
                raise ValueError(f"actions: {min(unknown)} is not among the playbooks")
            return self

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        own = self.options
        self._folder = Path()
        drifting = sum(book.drift for book in own.playbooks.values())
        self.components = (
            self._observer("facts", "Gather facts of all hosts.", own.interval),
            *(
                [
                    self._observer(
                        "drift", "Look for changes to be made.", own.drift_interval, drifting
                    )
                ]
                if drifting
                else []
            ),
            *(self._action(name, own.playbooks[name]) for name in own.actions),
        )

    def use_folder(self, folder: Path) -> None:
        """Find the project from the *folder* of the agent file."""
        self._folder = folder

    def offers(self, action: str) -> bool:
        """True if the options enable the playbook *action*."""
        return action in self.options.actions

    def access_of(self, action: str, default: Any) -> Any:
        """The credentials for the playbook *action*."""
        own = self.options.actions[action]
        return own if own.model_fields_set else default

    def _observer(self, name: str, description: str, interval: float, runs: int = 1) -> Observer:
        return Observer(
            name=name,
            description=description,
            interval=interval,
            timeout=runs * self.options.observe_timeout + MARGIN,
            observe=getattr(self, name),
        )

    def _action(self, name: str, book: AnsiblePlaybook) -> Action:
        settings: dict[str, Any] = {"rollback": partial(self._roll_back, name)}
        return Action(
            name=name,
            description=book.description or f"Run the playbook {book.file}.",
            risk=book.risk,
            autonomy=Autonomy(mode="approval-required"),
            target="hosts",
            timeout=book.timeout + MARGIN,
            params=book.params(name),
            execute=partial(self._execute, name),
            dry_run=partial(self._preview, name),
            verify=partial(self._verify, name),
            checks=EffectChecks(within=book.verify_within, every=max(5.0, book.verify_within / 20)),
            **(settings if book.rollback else {}),
        )

    def facts(self, ctx: Context) -> list[Observation]:
        """Observe facts of hosts, and hosts that cannot be reached."""
        report = self._gather(self.options.hosts, self.options.facts, self.options.gather_subset)
        check_report = CheckReport(ctx, self.options.max_items)
        for name, host in sorted(report.hosts.items()):
            if host.error:
                kind = "unreachable" if host.unreachable else "failed"
                check_report.add(kind, "error", {"hosts": name, "error": host.error[:300]})
        for name, host in sorted(report.hosts.items()):
            if host.facts:
                facts = {key.removeprefix("ansible_"): value for key, value in host.facts.items()}
                check_report.add(
                    "host", "info", {"hosts": name, "facts": redactor().redact_json(facts)}
                )
        lost = len(report.names("unreachable"))
        return check_report.observations("summary", hosts=len(report.hosts), unreachable=lost)

    def drift(self, ctx: Context) -> list[Observation]:
        """Observe hosts that playbooks would change."""
        check_report = CheckReport(ctx, self.options.max_items)
        books = {name: book for name, book in self.options.playbooks.items() if book.drift}
        drifted = unknown = 0
        for name, book in books.items():
            params = book.params(name)(hosts=book.hosts)
            request = self._run_of(book, params, check=True, timeout=self.options.observe_timeout)
            run = self._runner().run(request)
            for host, host_report in sorted(run.report.hosts.items()):
                data: JsonObject = {"hosts": host, "playbook": name}
                if host_report.changes:
                    drifted += 1
                    tasks = [
                        change["task"] for change in host_report.changes[: self.options.max_items]
                    ]
                    check_report.add(
                        "drift", "warning", {**data, "tasks": list(dict.fromkeys(tasks))}
                    )
                elif host_report.state != "unchanged":
                    unknown += 1
                    check_report.add(
                        "unchecked", "warning", {**data, "error": host_report.error[:300]}
                    )
            if run.trouble:
                unknown += 1
                check_report.add(
                    "unchecked", "error", {"playbook": name, "error": run.trouble[-300:]}
                )
        return check_report.observations(
            "drifts", playbooks=len(books), drifted=drifted, unknown=unknown
        )

    @tool(timeout=MARGIN)
    def list_hosts(self, ctx: Context) -> JsonObject:
        """List the groups of the inventory with their hosts."""
        inventory = self._runner().inventory()
        groups: dict[str, Any] = {
            name: sorted(hosts)[:200]
            for name, hosts in sorted(inventory.items())
            if hosts != {name}
        }
        return dict(list(groups.items())[:100])

    @tool(timeout=180)
    def show_facts(self, params: HostParams, ctx: Context) -> JsonObject:
        """Gather all facts of a host, or those of `facts` of each host of a group."""
        alone = self._runner().inventory().get(params.hosts) == {params.hosts}
        own = self.options
        patterns, subset = (["*"], ["all"]) if alone else (own.facts, own.gather_subset)
        report = self._gather(params.hosts, patterns, subset)
        facts_by_host = {
            name: host.facts or {"error": host.error} for name, host in report.hosts.items()
        }
        redacted: JsonObject = redactor().redact_json(dict(sorted(facts_by_host.items())[:50]))
        return redacted

    def _gather(self, hosts: str, patterns: Sequence[str], subset: Sequence[str]) -> PlaybookReport:
        prefixed = [pattern if pattern == "*" else f"ansible_{pattern}" for pattern in patterns]
        variables = {"boyd_filter": prefixed, "boyd_subset": list(subset)}
        run = self._runner().run(
            PlaybookRun(FACTS, [hosts], variables, facts=True, timeout=self.options.observe_timeout)
        )
        if run.trouble or not run.report.hosts:
            raise AnsibleFailure(run.trouble or f"the inventory has no hosts in {hosts}")
        return run.report

    def _preview(self, name: str, params: PlaybookParams, ctx: Context) -> JsonObject:
        """The changes that check mode reports, and what it cannot know."""
        book, access = self._book(name)
        runner = self._runner(access)
        digest = self._project_digest(runner, params)
        run = runner.run(self._run_of(book, params, check=True))
        if not run.report.hosts:
            raise AnsibleFailure(run.trouble or f"{book.file} does nothing on {params.hosts}")
        return {**preview_of(run), "digest": digest}

    def _execute(
        self, name: str, params: PlaybookParams, ctx: Context
    ) -> JsonObject | ActionResult:
        """Run the playbook, if it is what was approved."""
        book, access = self._book(name)
        runner = self._runner(access)
        with running_lock(self._project) as lock:
            digest = self._project_digest(runner, params)
            self._check_approved(ctx, params, digest)
            run = runner.run(self._run_of(book, params), [lock])
        return self._result(run, {"digest": digest})

    def _roll_back(
        self, name: str, params: PlaybookParams, result: ActionResult, ctx: Context
    ) -> JsonObject | ActionResult:
        """Run the playbook that undoes it, on the hosts that it has changed."""
        book, access = self._book(name)
        done: Any = result.output
        changed = done["hosts"].get("changed", [])
        if not changed:
            return {"hosts": {}, "details": [], "note": "nothing was changed: nothing to undo"}
        runner = self._runner(access)
        # The verification of what is undone may be running: it must not cost the approval.
        with running_lock(self._project, ROLLBACK_PATIENCE) as lock:
            if self._project_digest(runner, params) != done["digest"]:
                raise AnsibleFailure(
                    f"the project or the hosts have changed since {book.file} ran: nothing was "
                    "undone; use the rollback as a playbook of its own, with a preview"
                )
            request = self._run_of(book, params, file=book.rollback, hosts=changed)
            run = runner.run(request, [lock])
        return self._result(run, {"digest": done["digest"]})

    def _verify(
        self, name: str, params: PlaybookParams, result: ActionResult | None, ctx: Context
    ) -> EffectVerdict:
        """The effect by the playbook for it, or by check mode."""
        book, access = self._book(name)
        runner = self._runner(access)
        with running_lock(self._project):
            output = result.output if result and isinstance(result.output, Mapping) else {}
            digest = output.get("digest")
            if digest and digest != self._project_digest(runner, params):
                says = "the project or the hosts have changed since it ran"
                return EffectVerdict(verdict="cannot tell", evidence=says)
            request = self._run_of(book, params, file=book.verify, check=book.verify is None)
            run = runner.run(request)
        return verdict_by_playbook(book.verify, run) if book.verify else verdict_by_check_mode(run)

    def _result(self, run: CompletedRun, more: JsonObject) -> JsonObject | ActionResult:
        report = run.report
        output: JsonObject = {**report.output(), **more}
        bad = report.names("failed", "unreachable", "unfinished")
        if not run.trouble and not bad:
            if report.hosts:
                return output
            raise AnsibleFailure("it matched no host: nothing was changed")
        if not report.hosts:
            raise AnsibleFailure(f"{run.trouble}: no host was touched")
        changed = report.names("changed")
        parts = [run.trouble, *troubles(report), f"changed: {join_names(changed) or 'none'}"]
        reason = "; ".join(filter(None, parts))
        if run.trouble or any(host.late for host in report.hosts.values()):
            return uncertain(reason).patched({"output": output})
        return ActionResult(action="", success=False, duration=0, error=reason, output=output)

    def _check_approved(self, ctx: Context, params: PlaybookParams, digest: str) -> None:
        """Refuse what differs from the previews of the approval, if it runs by one."""
        parts = (ctx.execution_id or "").split(":")
        approval_id = "approval" in parts[:2] and parts[parts.index("approval") + 1]
        if not approval_id:
            return
        item = ctx.approvals.get(approval_id)
        output = item.preview.output if item and item.preview and item.preview.success else None
        digests = set(_digests(output))
        if not digests:
            raise AnsibleFailure(
                "nothing was run: the approval shows no preview of it, which ties it to the files"
            )
        if digest not in digests:
            raise AnsibleFailure(
                f"nothing was run: files of {self._project}, or the hosts of {params.hosts}, have "
                "changed since the preview that was approved; ask for it again"
            )

    def _project_digest(self, runner: AnsibleRunner, params: PlaybookParams) -> str:
        """The digest of the project, and of the hosts that the params name."""
        hosts = runner.inventory().get(params.hosts)
        if not hosts:
            raise AnsibleFailure(f"the inventory has no host and no group {params.hosts}")
        project, inventory = self._project, self._inventory
        inside = inventory.is_relative_to(project)
        folders = [project] if inside else [project, inventory]
        return digest_of(folders, self.options.unpinned, hosts)

    def _book(self, name: str) -> tuple[AnsiblePlaybook, AnsibleAccess]:
        return self.options.playbooks[name], self.access_of(name, self.options.access)

    def _run_of(
        self,
        book: AnsiblePlaybook,
        params: PlaybookParams,
        *,
        file: str | None = None,
        hosts: Sequence[str] = (),
        check: bool = False,
        timeout: float | None = None,
    ) -> PlaybookRun:
        path = file or book.file
        if not (self._project / path).is_file():
            raise AnsibleFailure(f"{self._project} has no playbook {path}")
        return PlaybookRun(
            file=path,
            hosts=list(hosts) or [params.hosts],
            variables=params.model_dump(mode="json", by_alias=True, exclude={"hosts"}),
            check=check,
            timeout=timeout or book.timeout,
        )

    @property
    def _project(self) -> Path:
        return (self._folder / self.options.project).absolute()

    @property
    def _inventory(self) -> Path:
        return self._project / self.options.inventory

    def _runner(self, access: AnsibleAccess | None = None) -> AnsibleRunner:
        own = self.options
        settings = AnsibleSettings(
            project=self._project,
            inventory=self._inventory,
            bin_dir=own.bin_dir,
            known_hosts=own.known_hosts,
            forks=own.forks,
            connect_timeout=own.connect_timeout,
            task_timeout=own.task_timeout,
        )
        return AnsibleRunner(settings, access or own.access)


def _digests(output: Any) -> Iterator[str]:
    """The digests in the preview of a playbook, or of the steps of a procedure."""
    if isinstance(output, Mapping):
        if isinstance(output.get("digest"), str):
            yield output["digest"]
        for step in output.get("steps") or ():
            yield from _digests(step.get("preview"))
