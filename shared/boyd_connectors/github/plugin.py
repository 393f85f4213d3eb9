"""The plugin `github`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from boyd.models import ActionResult, EffectVerdict, JsonObject, Model, Observation
from boyd.plugin import Connector, Context, Observer, action, tool
from boyd.plugins.http_service import HttpAccess, StateError, change
from boyd.plugins.results import difference
from boyd.settings.validation import BaseUrl
from boyd_connectors.connector_parts import CheckReport, SeparateReads
from boyd_connectors.github.github_api import RateLimit, Repository, Revert

_REPOSITORY = r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}"
RepositoryName = Annotated[str, Field(pattern=rf"^{_REPOSITORY}$")]
_BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,200}")
FAILED = ("failure", "timed_out", "startup_failure")
MAX_TEXT = 300
#: The most pages of open issues in which the one with a key is looked for.
ISSUE_PAGES = 20
#: Seconds of a look, and those after which no other repository is begun.
TIME, READ_TIME = 120.0, 80.0


class GitHubActions(BaseModel):
    """The actions that are enabled, each with its credentials."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rerun: HttpAccess | None = None
    revert: HttpAccess | None = None
    open_issue: HttpAccess | None = None


class RunParams(Model):
    """A run of a workflow as `owner/name#id`."""

    run: str = Field(pattern=rf"^{_REPOSITORY}#[1-9][0-9]{{0,19}}$")


def _branch(name: str) -> str:
    if not _BRANCH.fullmatch(name) or ".." in name:
        raise ValueError("is no name of a branch that can be used here")
    return name


class RevertParams(Model):
    """A commit as `owner/name@sha`, the branch to take it back from, and why."""

    commit: str = Field(pattern=rf"^{_REPOSITORY}@[0-9a-f]{{40}}$")
    branch: Annotated[str, AfterValidator(_branch)]
    why: str = Field(default="", max_length=2000)


class IssueParams(Model):
    """An issue; there is at most one open one with a *key*, by default its title."""

    repository: RepositoryName
    title: str = Field(min_length=1, max_length=200)
    body: str = Field(default="", max_length=20_000)
    key: str = Field(default="", max_length=200)

    @property
    def mark(self) -> str:
        """The invisible line that tells the issue apart."""
        digest = hashlib.sha256((self.key or self.title).encode()).hexdigest()[:24]
        return f"<!-- boyd {digest} -->"


class GitHub(Connector):
    """Watches workflows, issues and releases of repositories, and acts if its options say so."""

    id = "github"

    class Options(Connector.Options):
        """The plugin's options; times in seconds.

        Attributes:
            url: of the REST API; for GitHub Enterprise Server https://HOST/api/v3.
            repositories: the repositories to watch and act in, as `owner/name`.
            branch: the branch whose workflows are watched; by default all.
            labels: the labels of open issues to observe; an issue needs one of them.
            age: the age up to which runs and releases are observed.
            reserve: the requests of the rate limit that are left to others.
        """

        url: BaseUrl = "https://api.github.com"
        access: HttpAccess = HttpAccess()
        repositories: list[RepositoryName] = Field(min_length=1, max_length=50)
        branch: str | None = None
        labels: list[str] = Field(default_factory=list, max_length=10)
        age: float = Field(default=86_400.0, gt=0)
        interval: float = Field(default=300.0, gt=0)
        timeout: float = Field(default=10.0, gt=0, le=60)
        max_items: int = Field(default=50, ge=1, le=1000)
        reserve: int = Field(default=100, ge=0)
        actions: GitHubActions = GitHubActions()

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._limits: dict[str, RateLimit] = {}
        self._reads = SeparateReads(READ_TIME)
        self.components = (
            self._observer("workflows", "Find workflows whose latest run failed.", self.workflows),
            self._observer("issues", "Find open issues with certain labels.", self.issues),
            self._observer("releases", "Find recent releases.", self.releases),
        )

    # Observers

    def workflows(self, ctx: Context) -> list[Observation]:
        """Find workflows whose latest run on a branch failed."""
        report, runs, failed = self._report(ctx), 0, 0
        for latest in self._each(report, partial(self._latest_runs, ctx=ctx)):
            runs += len(latest)
            for data in latest:
                if data["conclusion"] in FAILED:
                    failed += 1
                    report.add("workflow", "error", data)
        return report.observations("workflows", workflows=runs, failed=failed)

    def issues(self, ctx: Context) -> list[Observation]:
        """Find open issues that have one of the labels of the options."""
        report, by_url = self._report(ctx), dict[str, JsonObject]()
        for issues in self._each(report, partial(self._issues_with_labels, ctx=ctx)):
            by_url |= {str(data["url"]): data for data in issues}
        for _, data in sorted(by_url.items()):
            report.add("issue", "warning", data)
        return report.observations("issues", issues=len(by_url))

    def releases(self, ctx: Context) -> list[Observation]:
        """Find releases that were published recently: what fails since may be due to them."""
        report, number = self._report(ctx), 0
        for releases in self._each(report, partial(self._recent_releases, ctx=ctx)):
            number += len(releases)
            for data in releases:
                report.add("release", "info", data, "event")
        return report.observations("releases", releases=number)

    # Tools

    @tool()
    def show_run(self, params: RunParams, ctx: Context) -> JsonObject:
        """Show a run of a workflow: its state, attempt, branch and commit."""
        return _run_data(params.run.partition("#")[0], self._run("", params.run, ctx))

    # Actions

    @action(
        risk="low",
        reversibility="irreversible",
        autonomy="approval-required",
        target="run",
    )
    def rerun(self, params: RunParams, ctx: Context) -> JsonObject | ActionResult:
        """Run the failed jobs of a workflow's run again."""
        return change(lambda: self._rerun(params, ctx))

    @rerun.dry_run
    def _would_rerun(self, params: RunParams, ctx: Context) -> JsonObject:
        run = self._rerunnable(params, ctx)
        return {"reruns": _run_data(params.run.partition("#")[0], run)}

    @rerun.verify(within=3600, every=30)
    def _has_succeeded(self, params: RunParams, result: ActionResult, ctx: Context) -> Any:
        run = self._run("rerun", params.run, ctx)
        output: Any = result.output if isinstance(result.output, dict) else {}
        state = f"attempt {run['run_attempt']} is {run['conclusion'] or run['status']}"
        if run["run_attempt"] <= output.get("attempt", 1):
            return EffectVerdict(verdict="no effect", evidence=state, final=False)
        if run["status"] != "completed":
            return EffectVerdict(verdict="cannot tell", evidence=state, final=False)
        verdict: Any = "effective" if run["conclusion"] == "success" else "no effect"
        return EffectVerdict(verdict=verdict, evidence=state)

    @action(risk="medium", autonomy="approval-required", target="commit", timeout=120)
    def revert(self, params: RevertParams, ctx: Context) -> JsonObject | ActionResult:
        """Open a pull request that takes a commit back; people merge it."""
        return change(lambda: self._revert(params).create(ctx, params.why))

    @revert.dry_run
    def _would_revert(self, params: RevertParams, ctx: Context) -> JsonObject:
        return self._revert(params).plan(ctx)

    @revert.rollback
    def _withdraw(self, params: RevertParams, result: ActionResult, ctx: Context) -> JsonObject:
        output: Any = result.output
        return self._revert(params).withdraw(ctx, output["head"])

    @revert.verify(within=60, every=10)
    def _is_proposed(self, params: RevertParams, ctx: Context) -> EffectVerdict:
        pull = self._revert(params).pull(ctx)
        if pull is None:
            return EffectVerdict(verdict="no effect", evidence="there is none", final=False)
        proposed = pull["state"] == "open" or bool(pull["merged_at"])
        state = "merged" if pull["merged_at"] else pull["state"]
        return _verdict(proposed, f"pull request {pull['number']} is {state}")

    @action(risk="low", target="repository", idempotent=True)
    def open_issue(self, params: IssueParams, ctx: Context) -> JsonObject | ActionResult:
        """Open an issue, unless there is an open one with its key."""
        return change(lambda: self._open_issue(params, ctx))

    @open_issue.dry_run
    def _would_open(self, params: IssueParams, ctx: Context) -> JsonObject:
        issue = self._find_issue(params, ctx)
        if issue is not None:
            return {"opens": None, "open": issue["html_url"]}
        after = {"title": params.title, "body": params.body}
        text = difference({}, after, f"an issue of {params.repository}")
        return {"difference": [*text.splitlines()]}

    @open_issue.rollback
    def _close(self, params: IssueParams, result: ActionResult, ctx: Context) -> JsonObject:
        output: Any = result.output
        if not output["opened"]:
            raise StateError(f"issue {output['issue']} was there before")
        path = f"/issues/{output['issue']}"
        body = {"state": "closed", "state_reason": "not_planned"}
        self._repository(params.repository, "open_issue").send(ctx, "PATCH", path, body)
        return {"issue": output["issue"], "state": "closed"}

    @open_issue.verify(within=60, every=10)
    def _is_open(self, params: IssueParams, ctx: Context) -> EffectVerdict:
        issue = self._find_issue(params, ctx)
        if issue is None:
            return _verdict(False, "there is no such open issue")
        return _verdict(True, f"issue {issue['number']} is open")

    # What they share

    def _rerun(self, params: RunParams, ctx: Context) -> JsonObject:
        run = self._rerunnable(params, ctx)
        name, _, id = params.run.partition("#")
        path = f"/actions/runs/{id}/rerun-failed-jobs"
        self._repository(name, "rerun").send(ctx, "POST", path, {})
        return {"attempt": run["run_attempt"], "url": run["html_url"]}

    def _rerunnable(self, params: RunParams, ctx: Context) -> Any:
        run = self._run("rerun", params.run, ctx)
        if run["conclusion"] not in FAILED:
            state = run["conclusion"] or run["status"]
            raise StateError(f"run {params.run} is {state}: only a failed one is run again")
        return run

    def _run(self, name: str, run: str, ctx: Context) -> Any:
        repository, _, id = run.partition("#")
        return self._repository(repository, name).get(ctx, f"/actions/runs/{id}")

    def _revert(self, params: RevertParams) -> Revert:
        name, _, commit = params.commit.partition("@")
        return Revert(self._repository(name, "revert"), commit, params.branch)

    def _open_issue(self, params: IssueParams, ctx: Context) -> JsonObject:
        issue = self._find_issue(params, ctx)
        if issue is not None:
            return {"issue": issue["number"], "url": issue["html_url"], "opened": False}
        body = {"title": params.title, "body": f"{params.body}\n\n{params.mark}".lstrip()}
        answer = self._repository(params.repository, "open_issue").send(
            ctx, "POST", "/issues", body
        )
        return {"issue": answer["number"], "url": answer["html_url"], "opened": True}

    def _find_issue(self, params: IssueParams, ctx: Context) -> Any | None:
        """The open issue with the key; the newest come first."""
        repository = self._repository(params.repository, "open_issue")
        issues = repository.pages(ctx, "/issues", pages=ISSUE_PAGES, state="open")
        return next((issue for issue in issues if params.mark in (issue["body"] or "")), None)

    def _latest_runs(self, repository: Repository, ctx: Context) -> list[JsonObject]:
        """The latest completed run of each workflow on each branch."""
        since = (ctx.now() - timedelta(seconds=self.options.age)).strftime("%Y-%m-%dT%H:%M:%SZ")
        where: dict[str, Any] = {"branch": self.options.branch} if self.options.branch else {}
        runs = repository.pages(
            ctx,
            "/actions/runs",
            "workflow_runs",
            status="completed",
            created=f">={since}",
            **where,
        )
        latest: dict[tuple[int, str], Any] = {}
        for run in filter(_is_of_its_branch, runs):
            # The newest come first.
            latest.setdefault((run["workflow_id"], run["head_branch"] or ""), run)
        return [_run_data(repository.name, latest[key]) for key in sorted(latest)]

    def _issues_with_labels(self, repository: Repository, ctx: Context) -> list[JsonObject]:
        """The open issues that have one of the labels."""
        return [
            _issue_data(repository.name, issue)
            for label in self.options.labels
            for issue in repository.pages(ctx, "/issues", state="open", labels=label)
            # The API counts pull requests as issues.
            if "pull_request" not in issue
        ]

    def _recent_releases(self, repository: Repository, ctx: Context) -> list[JsonObject]:
        releases = repository.get(ctx, "/releases", per_page=10)
        dated = [release for release in releases if release["published_at"]]
        recent = [release for release in dated if self._is_recent(release["published_at"], ctx)]
        return [_release_data(repository.name, release) for release in recent]

    def _each(
        self, report: CheckReport, read: Callable[[Repository], list[JsonObject]]
    ) -> Iterator[list[JsonObject]]:
        """The findings of *read* in each repository; reports what cannot be read.

        Trouble there is not seen.
        """
        repositories = {name: self._repository(name, "") for name in self.options.repositories}
        results, lost = self._reads.make(repositories, lambda name: read(repositories[name]))
        for name, error in lost.items():
            report.add("unreachable", "error", {"repository": name, "error": error})
        for name, items in results.items():
            for path in sorted(repositories[name].unread):
                report.add("unread", "warning", {"repository": name, "list": path})
            yield items

    def _is_recent(self, text: str, ctx: Context) -> bool:
        return ctx.now() - datetime.fromisoformat(text) <= timedelta(seconds=self.options.age)

    def _repository(self, name: str, action: str) -> Repository:
        """A repository of the options, with the credentials of an action or those to read with."""
        options = self.options
        if name not in options.repositories:
            raise StateError(f"{name} is not among the option `repositories`")
        access = self.access_of(action, options.access) if action else options.access
        # Each token has a limit of its own.
        key = action if access != options.access else ""
        limit = self._limits.setdefault(key, RateLimit(0 if key else options.reserve))
        return Repository(name, options.url, access, options.timeout, limit)

    def _observer(self, name: str, about: str, observe: Callable[..., Any]) -> Observer:
        return Observer(
            name=name,
            description=about,
            interval=self.options.interval,
            timeout=TIME,
            observe=observe,
        )

    def _report(self, ctx: Context) -> CheckReport:
        return CheckReport(ctx, self.options.max_items)


def _is_of_its_branch(run: Any) -> bool:
    """True if a run is of the repository's own branch; a fork's may have the same name."""
    head, base = run.get("head_repository"), run.get("repository")
    foreign = bool(head and base) and head["id"] != base["id"]
    return not foreign and not str(run.get("event", "")).startswith("pull_request")


def _run_data(repository: str, run: Any) -> JsonObject:
    return {
        "run": f"{repository}#{run['id']}",
        "workflow": run["name"],
        "branch": run["head_branch"],
        "commit": f"{repository}@{run['head_sha']}",
        "attempt": run["run_attempt"],
        "conclusion": run["conclusion"] or run["status"],
        "url": run["html_url"],
    }


def _issue_data(repository: str, issue: Any) -> JsonObject:
    return {
        "repository": repository,
        "issue": issue["number"],
        "title": issue["title"][:MAX_TEXT],
        "labels": [label["name"] for label in issue["labels"]],
        "url": issue["html_url"],
    }


def _release_data(repository: str, release: Any) -> JsonObject:
    return {
        "repository": repository,
        "tag": release["tag_name"],
        "branch": release["target_commitish"],
        "published": release["published_at"],
        "url": release["html_url"],
    }


def _verdict(effective: bool, evidence: str) -> EffectVerdict:
    verdict: Any = "effective" if effective else "no effect"
    return EffectVerdict(verdict=verdict, evidence=evidence, final=effective)
