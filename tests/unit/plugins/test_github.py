"""The rate limit, names and marks of the plugin `github`; tests/connections has an emulation."""

from __future__ import annotations

import pytest

from boyd.errors import PluginError
from boyd.plugins.github import GitHub
from boyd.plugins.github.github_api import RateLimit
from boyd.plugins.github.plugin import IssueParams, RevertParams, RunParams
from boyd.plugins.http_service import ServiceError


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


def test_issues_are_told_apart_by_their_key_or_title() -> None:
    one = IssueParams(repository="a/b", title="Slow")
    assert one.mark == IssueParams(repository="a/b", title="Slow", body="other").mark
    assert one.mark != IssueParams(repository="a/b", title="Slow", key="k").mark
    assert one.mark == IssueParams(repository="a/b", title="Other", key="Slow").mark


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
