"""The rate limit, names and marks of the plugin `github`; tests/connections has an emulation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from boyd.errors import PluginError
from boyd.plugins.http_service import ServiceError
from boyd_connectors.github import GitHub
from boyd_connectors.github.github_api import RateLimit
from boyd_connectors.github.plugin import IssueParams, RevertParams, RunParams
from plugin_kit import Rig, Site, site


class Time:
    """A time that stands still until it is moved."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("headers", "refused", "until"),
    [
        ({"x-ratelimit-remaining": "10", "x-ratelimit-reset": "1300"}, False, 1000),
        ({"x-ratelimit-remaining": "9", "x-ratelimit-reset": "1300"}, False, 1300),
        ({"retry-after": "30"}, True, 1030),
        ({}, True, 1060),
        ({}, False, 1000),
        ({"x-ratelimit-remaining": "many", "x-ratelimit-reset": "soon"}, False, 1000),
    ],
)
def test_nothing_is_asked_until_the_rate_limit_is_renewed(
    headers: dict[str, str], refused: bool, until: float
) -> None:
    clock = Time()
    limit = RateLimit(10, clock)
    limit.learn(headers, refused=refused)
    if until > clock.now:
        with pytest.raises(ServiceError, match=f"asked again in {until - clock.now:.0f} s"):
            limit.check()
    clock.now = until
    limit.check()


@pytest.mark.parametrize(
    ("status", "is_limit"), [(403, True), (429, True), (404, False), (422, False)]
)
def test_only_a_refusal_is_about_the_rate_limit(status: int, is_limit: bool) -> None:
    with site() as server:
        server.status, server.body = status, b'{"message": "a secondary rate limit, says an issue"}'
        rig = Rig(GitHub(url=server.url, repositories=["a/shop"]))
        repository = rig.plugin._repository("a/shop", "")  # type: ignore[attr-defined]
        for _ in range(2):
            with pytest.raises(ServiceError):
                repository.get(rig.ctx, "/issues")
    assert len(server.requests) == (1 if is_limit else 2)


def test_issues_are_identified_by_key_or_title() -> None:
    params = IssueParams(repository="a/b", title="Slow")
    assert params.mark == IssueParams(repository="a/b", title="Slow", body="other").mark
    assert params.mark != IssueParams(repository="a/b", title="Slow", key="k").mark
    assert params.mark == IssueParams(repository="a/b", title="Other", key="Slow").mark


def watching(server: Site) -> Rig:
    names = ["a/gone", "a/shop", "a/odd"]
    return Rig(GitHub(url=server.url, repositories=names, labels=["incident"]))


RUN = {
    "id": 1,
    "workflow_id": 1,
    "name": "Build",
    "head_branch": "main",
    "event": "push",
    "head_sha": "0" * 40,
    "conclusion": "failure",
    "html_url": "u",
    "run_attempt": 1,
    "created_at": "2026-01-05T11:00:00Z",
    "updated_at": "2026-01-05T11:00:00Z",
}
ISSUE = {"html_url": "i", "number": 1, "title": "It burns", "labels": [], "state": "open"}
RELEASE = {
    "tag_name": "1",
    "target_commitish": "main",
    "published_at": "2026-01-05T11:00:00Z",
    "html_url": "r",
    "name": "1",
}
LISTS: dict[str, Any] = {
    "/actions/runs": {"workflow_runs": [RUN]},
    "/issues": [{**ISSUE, "created_at": RUN["created_at"], "updated_at": RUN["created_at"]}],
    "/releases": [RELEASE],
}


def test_a_repository_that_cannot_be_read_hides_no_other() -> None:
    with site() as server:

        def hold() -> None:
            path = server.requests[-1][1].partition("?")[0]
            server.status = 404 if "/gone/" in path else 200
            [listed] = [body for end, body in LISTS.items() if path.endswith(end)]
            server.body = json.dumps("nonsense" if "/odd/" in path else listed).encode()

        server.hold = hold
        observations = watching(server).observe()

    lost = [
        observation.data["repository"]
        for observation in observations
        if observation.source == "github/unreachable"
    ]
    assert sorted(map(str, lost)) == ["a/gone"] * 3 + ["a/odd"] * 3
    sources = {observation.source for observation in observations}
    assert sources >= {"github/workflow", "github/issue", "github/release", "github/workflows"}


def test_when_no_repository_can_be_read_the_look_fails() -> None:
    with site() as server:
        server.status = 503
        rig = watching(server)
        with pytest.raises(ServiceError, match="answered 503"):
            rig.plugin.workflows(rig.ctx)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["shop", "a/b/c", "../x", "a/b?c"])
def test_a_repository_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(PluginError, match="repositories"):
        GitHub(repositories=[name])


def test_a_run_has_one_number_for_budgets() -> None:
    with pytest.raises(ValueError, match="run"):
        RunParams(run="a/b#07")


@pytest.mark.parametrize("branch", ["", "-x", "a/../../../user", "a?b", "a#b"])
def test_a_branch_that_would_lead_elsewhere_is_refused(branch: str) -> None:
    with pytest.raises(ValueError, match="branch"):
        RevertParams(commit=f"a/b@{'0' * 40}", branch=branch)
