"""Reverts as pull requests, made with the REST API alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from boyd.models import JsonObject
from boyd.plugin import Context
from boyd.plugins.http_service import ServiceError, StateError
from boyd_connectors.github.github_api import Repository


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
        commit = self._reverted(ctx)
        return {
            "commit": self.commit,
            "message": commit["message"][:500],
            "author": commit["author"]["name"],
            "onto": self.onto,
            "branch": self.branch,
        }

    def create(self, ctx: Context, why: str) -> JsonObject:
        """Create the branch and the pull request; nobody is asked to merge it but people."""
        repository, commit = self.repository, self._reverted(ctx)
        before = repository.get(ctx, f"/git/commits/{commit['parents'][0]['sha']}")
        subject = commit["message"].partition("\n")[0][:200]
        message = f'Revert "{subject}"\n\nThis reverts commit {self.commit}.'
        opposite = {
            "message": message,
            "tree": before["tree"]["sha"],
            "parents": [self.commit],
        }
        made = repository.send(ctx, "POST", "/git/commits", opposite)
        head = repository.get(ctx, f"/git/ref/heads/{self.onto}")["object"]["sha"]
        reference = {"ref": f"refs/heads/{self.branch}", "sha": head}
        repository.send(ctx, "POST", "/git/refs", reference)
        try:
            merge = {"base": self.branch, "head": made["sha"], "commit_message": message}
            merged = repository.send(ctx, "POST", "/merges", merge)
            pull = {
                "title": f'Revert "{subject}"',
                "head": self.branch,
                "base": self.onto,
                "body": f"{why}\n\nThis reverts commit {self.commit}.".strip(),
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
        found = self.repository.get(
            ctx,
            "/pulls",
            state="all",
            head=f"{owner}:{self.branch}",
            sort="created",
            direction="desc",
        )
        return found[0] if found else None

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

    def _reverted(self, ctx: Context) -> Any:
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
