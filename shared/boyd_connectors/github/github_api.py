"""The REST API of GitHub, whose rate limit is respected."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from boyd.models import JsonObject
from boyd.plugin import Context
from boyd.plugins.http_service import HttpAccess, HttpService, ServiceError, StateError

#: The version of the API that is spoken.
API_VERSION = "2022-11-28"
PAGE = 100
_HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": API_VERSION}


class RateLimit:
    """The requests that are left, as the latest answer says; each process learns it by itself.

    With fewer than *reserve* left, nothing more is asked until they are renewed.
    """

    def __init__(self, reserve: int, clock: Callable[[], float] = time.time) -> None:
        self._reserve = max(1, reserve)
        self._clock = clock
        self._until = 0.0

    def check(self) -> None:
        """Check that a request may be sent.

        Raises:
            ServiceError: none may be, for some time.
        """
        left = self._until - self._clock()
        if left > 0:
            raise ServiceError(f"GitHub's rate limit is used up; asked again in {left:.0f} s")

    def learn(self, headers: Mapping[str, str], *, refused: bool = False) -> None:
        """Take note of an answer; *refused* if it was not given for the limit."""
        reset = _number(headers.get("x-ratelimit-reset"))
        remaining = headers.get("x-ratelimit-remaining")
        if headers.get("retry-after") is not None:
            self._until = self._clock() + _number(headers["retry-after"])
        elif remaining is not None and _number(remaining) < self._reserve:
            self._until = reset
        elif refused:
            # GitHub asks to wait for a minute if it does not say how long.
            self._until = self._clock() + 60


def _number(text: str | None) -> float:
    try:
        return max(0.0, float(text or 0))
    except ValueError:
        return 0.0


class Repository:
    """A repository, with certain credentials; `unread` are lists with more pages than were read."""

    def __init__(
        self, name: str, url: str, access: HttpAccess, timeout: float, limit: RateLimit
    ) -> None:
        self.name = name
        self._service = HttpService(url, access, timeout)
        self._limit = limit
        self.unread: set[str] = set()

    def get(self, ctx: Context, path: str, **params: Any) -> Any:
        """GET what is below the repository."""
        return self.send(ctx, "GET", path, params=params)

    def find(self, ctx: Context, path: str) -> Any | None:
        """GET what is below the repository; None if it is not there."""
        try:
            return self.get(ctx, path)
        except ServiceError as error:
            if error.status == 404:
                return None
            raise

    def pages(
        self, ctx: Context, path: str, key: str = "", pages: int = 3, **params: Any
    ) -> Iterator[Any]:
        """The items of the first pages of a list, in a field *key* if it has one."""
        for page in range(1, pages + 1):
            answer = self.get(ctx, path, per_page=PAGE, page=page, **params)
            items = answer[key] if key else answer
            yield from items
            if len(items) < PAGE:
                return
        self.unread.add(path)

    def send(
        self,
        ctx: Context,
        method: Literal["GET", "POST", "PATCH", "DELETE"],
        path: str,
        body: Any = None,
        params: Mapping[str, Any] | None = None,
    ) -> Any:
        """Send a request, unless the rate limit forbids it.

        Raises:
            ServiceError: it was not sent, refused, or has no usable answer.
        """
        self._limit.check()
        try:
            answer, headers = self._service.exchange(
                ctx, method, f"/repos/{self.name}{path}", body=body, params=params, headers=_HEADERS
            )
        except ServiceError as error:
            # A limit without headers is a 403 that only its words tell from missing rights.
            words = error.status == 403 and "rate limit" in str(error)
            refused = error.status == 429 or words
            self._limit.learn(error.headers, refused=refused)
            raise
        self._limit.learn(headers)
        return answer


@dataclass(frozen=True)
class Revert:
    """The revert of a commit on a branch, as a pull request from a branch of its own.

    The opposite of the commit is a commit on top of it with the tree from before. GitHub merges
    that into the new branch, which starts at the end of the old one, so it takes back exactly the
    change, and conflicts with what was built on it.
    """

    repository: Repository
    commit: str
    onto: str

    @property
    def branch(self) -> str:
        """The branch of the pull request; the same for the same revert."""
        return f"boyd/revert-{self.commit[:12]}"

    def plan(self, ctx: Context) -> JsonObject:
        """The commit that would be reverted.

        Raises:
            StateError: it cannot be reverted, or is already.
        """
        commit = self._revertible_commit(ctx)
        return {
            "commit": self.commit,
            "message": commit["message"][:500],
            "author": commit["author"]["name"],
            "onto": self.onto,
            "branch": self.branch,
        }

    def create(self, ctx: Context, reason: str) -> JsonObject:
        """Create the branch and the pull request; nobody is asked to merge it but people."""
        repository, commit = self.repository, self._revertible_commit(ctx)
        before = repository.get(ctx, f"/git/commits/{commit['parents'][0]['sha']}")
        subject = commit["message"].partition("\n")[0][:200]
        message = f'Revert "{subject}"\n\nThis reverts commit {self.commit}.'
        opposite = {
            "message": message,
            "tree": before["tree"]["sha"],
            "parents": [self.commit],
        }
        revert = repository.send(ctx, "POST", "/git/commits", opposite)
        head = repository.get(ctx, f"/git/ref/heads/{self.onto}")["object"]["sha"]
        reference = {"ref": f"refs/heads/{self.branch}", "sha": head}
        repository.send(ctx, "POST", "/git/refs", reference)
        try:
            merge = {"base": self.branch, "head": revert["sha"], "commit_message": message}
            merged = repository.send(ctx, "POST", "/merges", merge)
            pull = {
                "title": f'Revert "{subject}"',
                "head": self.branch,
                "base": self.onto,
                "body": f"{reason}\n\nThis reverts commit {self.commit}.".strip(),
            }
            opened = repository.send(ctx, "POST", "/pulls", pull)
        except ServiceError as error:
            if error.lost:
                raise
            self._delete_branch(ctx)
            if error.status == 409:
                raise StateError("later commits build on it: GitHub finds a conflict") from None
            raise
        return {
            "pull": opened["number"],
            "url": opened["html_url"],
            "branch": self.branch,
            "head": merged["sha"] if merged else head,
        }

    def pull(self, ctx: Context) -> Any | None:
        """The latest pull request, open or not; None if there is none."""
        owner = self.repository.name.partition("/")[0]
        pulls = self.repository.get(
            ctx,
            "/pulls",
            state="all",
            head=f"{owner}:{self.branch}",
            sort="created",
            direction="desc",
        )
        return pulls[0] if pulls else None

    def withdraw(self, ctx: Context, head: str) -> JsonObject:
        """Close the pull request and delete its branch, if that still ends with *head*.

        Raises:
            StateError: it is merged already, or somebody has pushed to its branch.
        """
        ref = self.repository.find(ctx, f"/git/ref/heads/{self.branch}")
        if ref is not None and ref["object"]["sha"] != head:
            raise StateError(f"somebody has pushed to {self.branch} since: nothing was done")
        pull = self.pull(ctx)
        if pull is None:
            raise StateError(f"{self.repository.name} has no pull request from {self.branch}")
        if pull["merged_at"]:
            raise StateError(f"pull request {pull['number']} is merged already")
        if pull["state"] == "open":
            path = f"/pulls/{pull['number']}"
            self.repository.send(ctx, "PATCH", path, {"state": "closed"})
        self._delete_branch(ctx)
        return {"pull": pull["number"], "state": "closed"}

    def _revertible_commit(self, ctx: Context) -> Any:
        """The commit, if it can be reverted and is not yet."""
        commit = self.repository.find(ctx, f"/git/commits/{self.commit}")
        if commit is None:
            raise StateError(f"{self.repository.name} has no commit {self.commit}")
        if len(commit["parents"]) != 1:
            number = len(commit["parents"])
            raise StateError(f"commit {self.commit} has {number} parents; only one can be taken")
        since = self.repository.get(ctx, f"/compare/{self.commit}...{self.onto}", per_page=1)
        if since["status"] not in ("ahead", "identical"):
            raise StateError(f"commit {self.commit} is not on {self.onto}")
        if self.repository.find(ctx, f"/git/ref/heads/{self.branch}"):
            raise StateError(f"there is a branch {self.branch} already; delete it to try again")
        return commit

    def _delete_branch(self, ctx: Context) -> None:
        if self.repository.find(ctx, f"/git/ref/heads/{self.branch}"):
            self.repository.send(ctx, "DELETE", f"/git/refs/heads/{self.branch}")
