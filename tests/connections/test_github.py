"""The plugin `github` with an emulation that checks requests by the published description."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests

import github_emulator
from boyd.models import ActionResult
from boyd.plugins.http_service import ServiceError, StateError
from boyd_connectors.github import GitHub
from connection_kit import UpAgent
from github_emulator import NAME, READ, WRITE, GitRepository
from harness import free_port, wait_until
from plugin_kit import Rig

pytestmark = [pytest.mark.real, pytest.mark.long]

ISSUE = {"repository": NAME, "title": "The shop is slow", "body": "Since noon."}


class EmulatedGitHub:
    """A process that serves a repository, and keeps it when it is killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        git = GitRepository(folder / "repository")
        first = git.commit({"app": "1", "readme": "a"}, [], "first")
        self.bad = git.commit({"app": "2", "readme": "a"}, [first], "A faster shop\n\nReally.")
        self.later = git.commit({"app": "2", "readme": "b"}, [self.bad], "readme")
        git.state["refs"] = {"refs/heads/main": self.later}
        run = {"workflow_id": 1, "head_branch": "main", "head_sha": self.bad, "status": "completed"}
        common = {"created_at": "2026-01-05T11:00:00Z", "run_attempt": 1, "name": "Build"}
        git.state["runs"] = [
            {**run, **common, "id": 1, "conclusion": "failure"},
            {**run, **common, "id": 2, "conclusion": "failure", "workflow_id": 2, "name": "Lint"},
            {**run, **common, "id": 3, "conclusion": "success", "workflow_id": 2, "name": "Lint"},
        ]
        published = ["2026-01-05T10:00:00Z", "2025-12-01T10:00:00Z"]
        git.state["releases"] = [{"tag_name": at[:10], "published_at": at} for at in published]
        issue = {"state": "open", "labels": [{"name": "incident"}], "body": None}
        git.state["issues"] = [
            {**issue, "number": 1, "title": "It burns"},
            {**issue, "number": 2, "title": "Put it out", "is_pull": True},
        ]
        git.save()
        self.git = git
        self.start()

    def start(self) -> None:
        """Start it with the repository as it was."""
        command = [sys.executable, github_emulator.__file__, str(self._port)]
        with (self._folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                [*command, str(self._folder / "repository")], stderr=log
            )
        wait_until(self._answers)

    def kill(self) -> None:
        """Kill it."""
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def arrange(self, **state: Any) -> Any:
        """Change what it knows; everything that it knows."""
        return requests.post(f"{self.url}/emulator", json=state, timeout=30).json()

    def files(self, branch: str) -> Any:
        """The files at the end of a branch."""
        state = self.arrange()
        return state["trees"][state["commits"][state["refs"][f"refs/heads/{branch}"]]["tree"]]

    def _answers(self) -> bool:
        try:
            return bool(self.arrange())
        except requests.RequestException:
            return False


@pytest.fixture
def github(tmp_path: Path) -> Iterator[EmulatedGitHub]:
    running = EmulatedGitHub(tmp_path)
    yield running
    running.kill()


@pytest.fixture
def rig(github: EmulatedGitHub, monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setenv("READER", READ)
    monkeypatch.setenv("WRITER", WRITE)
    names = ("rerun", "revert", "open_issue")
    rig = Rig(
        GitHub(
            url=github.url,
            access={"token": {"env": "READER"}},
            repositories=[NAME],
            labels=["incident"],
            actions={name: {"token": {"env": "WRITER"}} for name in names},
        )
    )
    rig.clock.time = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
    return rig


def call(rig: Rig, name: str, function: str, params: dict[str, Any], output: Any = None) -> Any:
    action = rig.host.actions[f"github:{name}"]
    assert action.params is not None
    result = ActionResult(action=action.id, success=True, duration=1, output=output)
    validated = action.params.model_validate(params)
    return action.call(function, params=validated, result=result, ctx=rig.ctx)


def test_failed_workflows_issues_and_releases_are_observed(
    rig: Rig, github: EmulatedGitHub
) -> None:
    by_kind: dict[str, list[Any]] = {}
    for observation in rig.observe():
        by_kind.setdefault(observation.source.partition("/")[2], []).append(observation.data)
    [failed] = by_kind["workflow"]
    assert (failed["run"], failed["workflow"]) == (f"{NAME}#1", "Build")
    assert failed["commit"] == f"{NAME}@{github.bad}"
    assert [issue["title"] for issue in by_kind["issue"]] == ["It burns"]
    assert [release["tag"] for release in by_kind["release"]] == ["2026-01-05"]
    assert by_kind["workflows"] == [{"workflows": 2, "failed": 1, "omitted": 0}]


def test_a_list_too_long_to_read_is_reported(
    rig: Rig, github: EmulatedGitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boyd_connectors.github.github_api.PAGE", 1)
    unread = [
        observation.data["list"]
        for observation in rig.observe()
        if observation.source == "github/unread"
    ]
    assert unread == ["/actions/runs"]


def test_failed_jobs_run_again_once(rig: Rig) -> None:
    params = {"run": f"{NAME}#1"}
    assert rig.act("rerun", params, "dry_run")["reruns"]["conclusion"] == "failure"
    assert call(rig, "rerun", "verify", params).verdict == "no effect"
    output = rig.act("rerun", params)
    assert call(rig, "rerun", "verify", params, output).verdict == "effective"
    for function in ("dry_run", "execute"):
        with pytest.raises(StateError, match="is success: only a failed one"):
            rig.act("rerun", params, function)


def test_a_commit_below_others_is_taken_back_in_a_pull_request_and_that_withdrawn(
    rig: Rig, github: EmulatedGitHub
) -> None:
    params = {"commit": f"{NAME}@{github.bad}", "branch": "main", "why": "It is slower."}
    plan = rig.act("revert", params, "dry_run")
    assert plan["message"].startswith("A faster shop")
    assert call(rig, "revert", "verify", params).verdict == "no effect"
    output = rig.act("revert", params)
    assert github.files(output["branch"]) == {"app": "1", "readme": "b"}
    assert github.files("main") == {"app": "2", "readme": "b"}
    assert call(rig, "revert", "verify", params, output).verdict == "effective"
    with pytest.raises(StateError, match="there is a branch"):
        rig.act("revert", params, "dry_run")
    name, refs = f"refs/heads/{output['branch']}", github.arrange()["refs"]
    github.arrange(refs={**refs, name: github.later})
    with pytest.raises(StateError, match="somebody has pushed"):
        call(rig, "revert", "rollback", params, output)
    github.arrange(refs=refs)
    assert call(rig, "revert", "rollback", params, output)["state"] == "closed"
    assert list(github.arrange()["refs"]) == ["refs/heads/main"]


def test_a_commit_that_others_build_on_leaves_nothing_behind(
    rig: Rig, github: EmulatedGitHub
) -> None:
    after = github.git.commit({"app": "3", "readme": "b"}, [github.later], "more")
    github.arrange(**{**github.git.state, "refs": {"refs/heads/main": after}})
    with pytest.raises(StateError, match="conflict"):
        rig.act("revert", {"commit": f"{NAME}@{github.bad}", "branch": "main"})
    assert list(github.arrange()["refs"]) == ["refs/heads/main"]
    with pytest.raises(StateError, match="has no commit"):
        rig.act("revert", {"commit": f"{NAME}@{'0' * 40}", "branch": "main"}, "dry_run")


def test_an_issue_is_opened_once_and_closed_again(rig: Rig, github: EmulatedGitHub) -> None:
    assert "+title: The shop is slow" in rig.act("open_issue", ISSUE, "dry_run")["difference"]
    output = rig.act("open_issue", ISSUE)
    again = rig.act("open_issue", ISSUE)
    assert (again["issue"], again["opened"]) == (output["issue"], False)
    assert rig.act("open_issue", ISSUE, "dry_run")["opens"] is None
    assert call(rig, "open_issue", "verify", ISSUE, output).verdict == "effective"
    with pytest.raises(StateError, match="was there before"):
        call(rig, "open_issue", "rollback", ISSUE, again)
    call(rig, "open_issue", "rollback", ISSUE, output)
    assert call(rig, "open_issue", "verify", ISSUE, output).verdict == "no effect"


def test_an_issue_below_hundreds_of_later_ones_is_not_opened_again(
    rig: Rig, github: EmulatedGitHub
) -> None:
    first = rig.act("open_issue", ISSUE)
    later: dict[str, Any] = {"state": "open", "labels": [], "body": None, "title": "Another"}
    issues = github.arrange()["issues"]
    numbers = range(len(issues) + 1, len(issues) + 401)
    github.arrange(issues=[*issues, *({**later, "number": number} for number in numbers)])
    again = rig.act("open_issue", ISSUE)
    assert (again["issue"], again["opened"]) == (first["issue"], False)


def test_the_rate_limit_is_left_alone_once_it_is_nearly_used_up(
    rig: Rig, github: EmulatedGitHub
) -> None:
    github.arrange(remaining=50, reset=int(time.time()) + 600)
    with pytest.raises(ServiceError, match="rate limit is used up; asked again in"):
        rig.observe()
    assert github.arrange()["remaining"] == 49
    # An action has a token, and a limit, of its own.
    rig.act("open_issue", ISSUE, "dry_run")


def test_an_action_needs_its_credentials_and_a_repository_of_the_options(
    rig: Rig, github: EmulatedGitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WRITER", READ)
    with pytest.raises(ServiceError, match="403"):
        rig.act("open_issue", ISSUE)
    with pytest.raises(StateError, match="not among the option"):
        rig.act("open_issue", {**ISSUE, "repository": "other/repository"})


def test_an_agent_reverts_with_approval_and_finds_the_pull_request_whose_answer_was_lost(
    github: EmulatedGitHub, tmp_path: Path
) -> None:
    text = AGENT.format(url=github.url)
    with UpAgent(tmp_path, text, READER=READ, WRITER=WRITE) as agent:
        params = {"commit": f"{NAME}@{github.bad}", "branch": "main"}
        item, reverted = agent.perform("github:revert", **params)
        assert item["preview"]["output"]["branch"].startswith("boyd/revert-")
        assert agent.verified(reverted)["verdict"] == "effective"
        assert agent.undo(reverted)["state"] == "succeeded"

        called = agent.ask("POST", "/actions/github:revert?wait=60", {"params": params})
        github.arrange(hold="/pulls")
        agent.ask("POST", f"/approvals/{called['approvalId']}/approve?wait=0", {})
        lost = {"id": f"approval:{called['approvalId']}"}
        wait_until(lambda: len(github.arrange()["pulls"]) == 2)
        github.kill()
        wait_until(lambda: agent.ask("GET", f"/executions/{lost['id']}")["state"] == "unknown")
        assert "cannot be reached" in agent.observer_error("github:workflows")
        github.start()
        assert agent.verified(lost)["verdict"] == "effective"
        agent.observed("github/workflows")


AGENT = """
id = "connected"
mode = "continuous"
loop_interval = 1
[[plugins]]
use = "github"
[plugins.options]
url = "{url}"
interval = 1
repositories = ["octo-org/shop"]
access = {{ token = {{ env = "READER" }} }}
[plugins.options.actions]
revert = {{ token = {{ env = "WRITER" }} }}
"""
