"""An emulation of GitHub's REST API: a process that serves one repository, kept in a file.

It checks each request against the published description of the API, which is
`tests/data/github/rest_api.json`: path, parameters, body, version and credentials. Its answers are
the examples of that description with what they are about filled in. Commits, merges and conflicts
are those of a small git.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
import sys
import threading
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from jsonschema import Draft4Validator

from http_kit import Handler

API: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data/github/rest_api.json").read_text()
)
NAME = "octo-org/shop"
READ, WRITE = "read-token", "write-token"


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class GitRepository:
    """Commits, branches, pull requests, issues, releases and runs."""

    def __init__(self, file: Path) -> None:
        self._file = file
        empty: dict[str, Any] = {"trees": {}, "commits": {}, "refs": {}}
        lists: dict[str, Any] = {"pulls": [], "issues": [], "releases": [], "runs": []}
        limits = {"remaining": 5000, "hold": ""}
        stored = json.loads(file.read_text()) if file.exists() else {}
        self.state: dict[str, Any] = {**empty, **lists, **limits, **stored, "hold": ""}

    def save(self) -> None:
        """Keep everything."""
        self._file.write_text(json.dumps(self.state))

    def commit(self, files: dict[str, str], parents: list[str], message: str) -> str:
        """A new commit with *files*."""
        return self.commit_tree(self._tree(files), parents, message)

    def commit_tree(self, tree: str, parents: list[str], message: str) -> str:
        """A new commit with a tree."""
        if tree not in self.state["trees"] or any(p not in self.state["commits"] for p in parents):
            raise Refusal(422, "Tree SHA or parent does not exist")
        sha = hashlib.sha1(json.dumps([tree, parents, message]).encode()).hexdigest()
        self.state["commits"][sha] = {"tree": tree, "parents": parents, "message": message}
        return sha

    def files(self, sha: str) -> dict[str, str]:
        """The files of a commit."""
        files_found: dict[str, str] = self.state["trees"][self.state["commits"][sha]["tree"]]
        return files_found

    def history(self, sha: str) -> list[str]:
        """A commit and all that it is based on, the nearest first."""
        shas, waiting = [], [sha]
        while waiting:
            commit = waiting.pop(0)
            if commit not in shas:
                shas.append(commit)
                waiting += self.state["commits"][commit]["parents"]
        return shas

    def merge(self, ours: str, theirs: str, message: str) -> str:
        """Merge two commits; 409 if both have changed a file."""
        base = self.files(
            next(commit for commit in self.history(ours) if commit in self.history(theirs))
        )
        ours_files, other, result = self.files(ours), self.files(theirs), {}
        for name in {*base, *ours_files, *other}:
            before, a, b = base.get(name), ours_files.get(name), other.get(name)
            if a not in (before, b) and b != before:
                raise Refusal(409, "Merge conflict")
            chosen = b if a == before else a
            if chosen is not None:
                result[name] = chosen
        return self.commit(result, [ours, theirs], message)

    def _tree(self, files: dict[str, str]) -> str:
        sha = hashlib.sha1(json.dumps(files, sort_keys=True).encode()).hexdigest()
        self.state["trees"][sha] = files
        return sha


class RestApi:
    """Answers requests to the repository."""

    def __init__(self, repository: GitRepository) -> None:
        self._git = repository
        self._state = repository.state

    def answer(self, method: str, url: str, headers: Any, body: Any) -> tuple[int, Any]:
        """Status and body."""
        parts = urlsplit(url)
        prefix = f"/repos/{NAME}"
        if not parts.path.startswith(prefix):
            raise Refusal(404, "Not Found")
        path = parts.path.removeprefix(prefix)
        operation, values = _operation(method, path)
        self._check(operation, method, headers, dict(parse_qsl(parts.query)), body)
        name = re.sub(r"\W+", "_", operation).lower().strip("_")
        answer: Callable[..., tuple[int, Any]] = getattr(self, name)
        status, result = answer(values, body, dict(parse_qsl(parts.query)))
        assert str(status) in API["operations"][operation]["codes"], (operation, status)
        return status, result

    def _check(
        self, operation: str, method: str, headers: Any, query: dict[str, str], body: Any
    ) -> None:
        token = headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in (READ, WRITE):
            raise Refusal(401, "Bad credentials")
        if token == READ and method != "GET":
            raise Refusal(403, "Resource not accessible by personal access token")
        if headers.get("X-GitHub-Api-Version") != API["version"]:
            raise Refusal(400, "unsupported version")
        operations = API["operations"][operation]
        for name, value in query.items():
            schema = operations["query"].get(name)
            if schema is None or ("enum" in schema and value not in schema["enum"]):
                raise Refusal(422, f"Validation Failed: {name}={value}")
        if "body" in operations and not Draft4Validator(operations["body"]).is_valid(body):
            raise Refusal(422, "Validation Failed: body")

    # The operations, by method and path

    def get_actions_runs(self, _: Any, __: Any, query: dict[str, str]) -> tuple[int, Any]:
        runs = [_fill("GET /actions/runs/{run_id}", **run) for run in self._state["runs"]]
        matching = [
            run
            for run in runs
            if run["status"] == query.get("status", run["status"])
            and run["head_branch"] == query.get("branch", run["head_branch"])
            and run["created_at"] >= query.get("created", "").removeprefix(">=")
        ]
        page = _page(sorted(matching, key=lambda run: -run["id"]), query)
        return 200, {"total_count": len(matching), "workflow_runs": page}

    def get_actions_runs_run_id(self, values: list[str], *_: Any) -> tuple[int, Any]:
        run = _one(self._state["runs"], "id", values[0])
        return 200, _fill("GET /actions/runs/{run_id}", **run)

    def post_actions_runs_run_id_rerun_failed_jobs(
        self, values: list[str], *_: Any
    ) -> tuple[int, Any]:
        run = _one(self._state["runs"], "id", values[0])
        run |= {"run_attempt": run["run_attempt"] + 1, "conclusion": "success"}
        return 201, {}

    def get_releases(self, _: Any, __: Any, query: dict[str, str]) -> tuple[int, Any]:
        releases = [_fill("GET /releases", **release) for release in self._state["releases"]]
        return 200, _page(releases, query)

    def get_issues(self, _: Any, __: Any, query: dict[str, str]) -> tuple[int, Any]:
        issues = [
            issue
            for issue in self._state["issues"]
            if issue["state"] == query.get("state", "open")
            and ("labels" not in query or query["labels"] in [x["name"] for x in issue["labels"]])
        ]
        return 200, _page([_issue(issue) for issue in reversed(issues)], query)

    def post_issues(self, _: Any, body: Any, __: Any) -> tuple[int, Any]:
        number = len(self._state["issues"]) + 1
        issue = {"number": number, "state": "open", "labels": [], **body}
        self._state["issues"].append(issue)
        return 201, _issue(issue)

    def patch_issues_issue_number(self, values: list[str], body: Any, _: Any) -> tuple[int, Any]:
        issue = _one(self._state["issues"], "number", values[0])
        issue |= body
        return 200, _issue(issue)

    def get_git_commits_commit_sha(self, values: list[str], *_: Any) -> tuple[int, Any]:
        return 200, self._commit("GET /git/commits/{commit_sha}", values[0])

    def post_git_commits(self, _: Any, body: Any, __: Any) -> tuple[int, Any]:
        sha = self._git.commit_tree(body["tree"], body["parents"], body["message"])
        return 201, self._commit("POST /git/commits", sha)

    def get_git_ref_ref(self, values: list[str], *_: Any) -> tuple[int, Any]:
        name = f"refs/{values[0]}"
        if name not in self._state["refs"]:
            raise Refusal(404, "Not Found")
        return 200, _fill("GET /git/ref/{ref}", ref=name, object={"sha": self._state["refs"][name]})

    def post_git_refs(self, _: Any, body: Any, __: Any) -> tuple[int, Any]:
        if body["ref"] in self._state["refs"]:
            raise Refusal(422, "Reference already exists")
        self._state["refs"][body["ref"]] = body["sha"]
        return 201, _fill("POST /git/refs", ref=body["ref"], object={"sha": body["sha"]})

    def delete_git_refs_ref(self, values: list[str], *_: Any) -> tuple[int, Any]:
        if self._state["refs"].pop(f"refs/{values[0]}", None) is None:
            raise Refusal(422, "Reference does not exist")
        return 204, None

    def post_merges(self, _: Any, body: Any, __: Any) -> tuple[int, Any]:
        name = f"refs/heads/{body['base']}"
        merged = self._git.merge(self._state["refs"][name], body["head"], body["commit_message"])
        self._state["refs"][name] = merged
        return 201, _fill("POST /merges", sha=merged)

    def get_pulls(self, _: Any, __: Any, query: dict[str, str]) -> tuple[int, Any]:
        branch = query["head"].partition(":")[2]
        pulls = [_pull(pull) for pull in self._state["pulls"] if pull["branch"] == branch]
        return 200, pulls[::-1] if query.get("direction") == "desc" else pulls

    def post_pulls(self, _: Any, body: Any, __: Any) -> tuple[int, Any]:
        if f"refs/heads/{body['head']}" not in self._state["refs"]:
            raise Refusal(422, "head is invalid")
        number = len(self._state["pulls"]) + 101
        pull = {"number": number, "state": "open", "branch": body["head"], "title": body["title"]}
        self._state["pulls"].append({**pull, "merged_at": None})
        return 201, _pull(self._state["pulls"][-1])

    def patch_pulls_pull_number(self, values: list[str], body: Any, _: Any) -> tuple[int, Any]:
        pull = _one(self._state["pulls"], "number", values[0])
        pull |= body
        return 200, _pull(pull)

    def get_compare_basehead(self, values: list[str], *_: Any) -> tuple[int, Any]:
        base, branch = values[0].split("...")
        head = self._state["refs"][f"refs/heads/{branch}"]
        status = "identical" if base == head else "diverged"
        if status == "diverged" and base in self._git.history(head):
            status = "ahead"
        return 200, _fill("GET /compare/{basehead}", status=status)

    def _commit(self, operation: str, sha: str) -> Any:
        commit = self._state["commits"].get(sha)
        if commit is None:
            raise Refusal(404, "Not Found")
        parents = [{"sha": parent} for parent in commit["parents"]]
        tree = {"sha": commit["tree"]}
        return _fill(operation, sha=sha, message=commit["message"], tree=tree, parents=parents)


def _operation(method: str, path: str) -> tuple[str, list[str]]:
    for operation in API["operations"]:
        verb, template = operation.split(" ")
        # Names of branches have slashes.
        pattern = re.sub(r"\{(ref|basehead)\}", "(.+)", template)
        pattern = re.sub(r"\{\w+\}", "([^/]+)", pattern)
        match = re.fullmatch(pattern, path)
        if verb == method and match:
            return operation, [unquote(value) for value in match.groups()]
    raise Refusal(404, f"the description has no {method} {path}")


def _fill(operation: str, **fields: Any) -> Any:
    """The example of the description with *fields*, all of which it must have."""
    example = copy.deepcopy(API["operations"][operation]["example"])
    example = example[0] if isinstance(example, list) else example
    unknown = set(fields) - set(example) - {"labels"}
    assert not unknown, (operation, unknown)
    return {**example, **fields}


def _issue(issue: Any) -> Any:
    fields = {name: issue[name] for name in ("number", "state", "title", "body", "labels")}
    url = f"https://github.com/{NAME}/issues/{issue['number']}"
    filled = _fill("POST /issues", **fields, html_url=url)
    if not issue.get("is_pull"):
        del filled["pull_request"]
    return filled


def _pull(pull: Any) -> Any:
    url = f"https://github.com/{NAME}/pull/{pull['number']}"
    fields = {name: pull[name] for name in ("number", "state", "title", "merged_at")}
    return _fill("POST /pulls", **fields, html_url=url)


def _page(items: list[Any], query: dict[str, str]) -> list[Any]:
    size, number = int(query.get("per_page", 30)), int(query.get("page", 1))
    return items[(number - 1) * size : number * size]


def _one(items: list[Any], key: str, value: str) -> Any:
    for item in items:
        if str(item[key]) == value:
            return item
    raise Refusal(404, "Not Found")


class ApiHandler(Handler):
    """Serves the API; what tests arrange and look at is under `/emulator`."""

    repository: GitRepository
    lock = threading.Lock()

    def answer(self) -> None:
        text = self.read_body()
        body = json.loads(text) if text else None
        with self.lock:
            state = self.repository.state
            if self.path == "/emulator":
                state.update(body or {})
                status, reply = 200, state
            else:
                status, reply = self._answer(body)
                state["remaining"] -= 1
            self.repository.save()
            held = state["hold"] and self.command == "POST" and self.path.endswith(state["hold"])
        if held:
            threading.Event().wait()
        state = self.repository.state
        limits = {
            "X_RateLimit_Remaining": str(max(0, state["remaining"])),
            "X_RateLimit_Reset": str(state.get("reset", 0)),
        }
        self.reply(status, b"" if reply is None else json.dumps(reply).encode(), **limits)

    def _answer(self, body: Any) -> tuple[int, Any]:
        if self.repository.state["remaining"] <= 0:
            return 403, {"message": "API rate limit exceeded"}
        try:
            return RestApi(self.repository).answer(self.command, self.path, self.headers, body)
        except Refusal as refusal:
            return refusal.status, {"message": str(refusal)}


if __name__ == "__main__":
    ApiHandler.repository = GitRepository(Path(sys.argv[2]))
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), ApiHandler).serve_forever()
