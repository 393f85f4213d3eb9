"""An emulation of a Kubernetes API server: a process that serves the objects of a file.

It validates each object that it stores or sends with the strict schemas of the published API, knows
the query parameters, content types, conditions and status codes that the API documents for what is
served, and does what controllers would do with a changed deployment. It is not a cluster.
"""

from __future__ import annotations

import copy
import json
import sys
import threading
import uuid
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kubernetes_validate.utils import validate

from http_kit import Handler

VERSION = "1.37"
REVISION = "deployment.kubernetes.io/revision"
KINDS = {
    "deployments": ("apps/v1", "Deployment"),
    "replicasets": ("apps/v1", "ReplicaSet"),
    "statefulsets": ("apps/v1", "StatefulSet"),
    "daemonsets": ("apps/v1", "DaemonSet"),
    "pods": ("v1", "Pod"),
    "nodes": ("v1", "Node"),
    "events": ("v1", "Event"),
}
QUERY = {"limit", "continue", "labelSelector", "fieldSelector", "fieldManager", "dryRun"}
#: What each token may do.
RIGHTS = {"reader": {"GET"}, "writer": {"GET", "PUT", "PATCH", "DELETE"}}


class Failure(Exception):
    """An answer with a status that is an error."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.body = {
            "apiVersion": "v1",
            "kind": "Status",
            "metadata": {},
            "status": "Failure",
            "reason": reason,
            "message": message,
            "code": code,
        }


class Objects:
    """The objects by `resource/namespace/name`, in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.held = False
        self.lock = threading.RLock()
        self.known: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}

    def put(self, resource: str, thing: Any) -> None:
        """Store an object as a new version."""
        api, kind = KINDS[resource]
        meta = {"uid": str(uuid.uuid4()), **thing["metadata"]}
        versions = [int(item["metadata"]["resourceVersion"]) for item in self.known.values()]
        meta["resourceVersion"] = str(max(versions, default=0) + 1)
        meta.setdefault("creationTimestamp", "2026-01-05T11:00:00Z")
        stored = {"apiVersion": api, "kind": kind, **thing, "metadata": meta}
        validate(stored, VERSION, strict=True)
        self.known[f"{resource}/{meta.get('namespace', '')}/{meta['name']}"] = stored
        if resource == "deployments":
            self._roll_out(stored)
        self._file.write_text(json.dumps(self.known))

    def remove(self, key: str) -> None:
        """Remove an object."""
        del self.known[key]
        self._file.write_text(json.dumps(self.known))

    def _roll_out(self, deployment: Any) -> None:
        """Bring replica sets and status to what the deployment says, as controllers do."""
        meta, spec = deployment["metadata"], deployment["spec"]
        if deployment.get("status", {}).get("observedGeneration") == meta["generation"]:
            return
        sets = [stored for key, stored in self.known.items() if key.startswith("replicasets/")]
        owned = [replica_set for replica_set in sets if _owner(replica_set) == meta["uid"]]
        latest = 1 + max(
            (int(replica_set["metadata"]["annotations"][REVISION]) for replica_set in owned),
            default=0,
        )
        for candidate in owned:
            if _template(candidate) == spec["template"]:
                candidate["metadata"]["annotations"][REVISION] = str(latest)
                break
        else:
            self.put("replicasets", _replica_set(deployment, latest))
        count = spec["replicas"]
        deployment["status"] = {
            "observedGeneration": meta["generation"],
            **(
                {"replicas": count, "readyReplicas": count, "updatedReplicas": count}
                if count
                else {}
            ),
        }


def _revision(replica_set: Any) -> int:
    return int(replica_set["metadata"]["annotations"][REVISION])


def _owner(thing: Any) -> str:
    return str(thing["metadata"]["ownerReferences"][0]["uid"])


def _template(replica_set: Any) -> Any:
    template = copy.deepcopy(replica_set["spec"]["template"])
    del template["metadata"]["labels"]["pod-template-hash"]
    return template


def _replica_set(deployment: Any, revision: int) -> Any:
    meta, template = deployment["metadata"], copy.deepcopy(deployment["spec"]["template"])
    template["metadata"]["labels"]["pod-template-hash"] = f"h{revision}"
    owner = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": meta["name"],
        "uid": meta["uid"],
    }
    return {
        "metadata": {
            "name": f"{meta['name']}-h{revision}",
            "namespace": meta["namespace"],
            "labels": template["metadata"]["labels"],
            "annotations": {REVISION: str(revision)},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {"selector": deployment["spec"]["selector"], "template": template},
    }


def apply_merge_patch(target: Any, patch: Any) -> Any:
    """A JSON merge patch, applied (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_merge_patch(result.get(key), value)
    return result


def apply_patch(target: Any, operations: Any) -> Any:
    """A JSON patch of `test`, `add` and `replace`, applied (RFC 6902); no lists."""
    result = copy.deepcopy(target)
    for operation in operations:
        *path, last = operation["path"].strip("/").split("/")
        parent = result
        for part in path:
            parent = parent[part]
        if operation["op"] == "test" and parent[last] != operation["value"]:
            raise Failure(
                422, "Invalid", f"the server rejected our request: {operation['path']} differs"
            )
        if operation["op"] in ("add", "replace"):
            parent[last] = operation["value"]
    return result


class ApiServer:
    """Answers requests."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def answer(self, method: str, url: str, token: str, type: str, body: Any) -> Any:
        """The object to send."""
        if token not in RIGHTS:
            raise Failure(401, "Unauthorized", "Unauthorized")
        if method not in RIGHTS[token]:
            raise Failure(403, "Forbidden", f'User "{token}" cannot {method.lower()} this')
        parts = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if strange := set(query) - QUERY:
            raise Failure(400, "BadRequest", f"unknown parameters: {strange}")
        resource, namespace, name, sub = _where(parts.path)
        if not name:
            return self._list(resource, namespace, query)
        key = f"{resource}/{namespace}/{name}"
        thing = self._objects.known.get(key)
        if thing is None:
            raise Failure(404, "NotFound", f'{resource} "{name}" not found')
        if method == "GET":
            return _scale(thing) if sub else thing
        return self._change(method, key, thing, type, body, dry=query.get("dryRun") == "All")

    def _list(self, resource: str, namespace: str, query: dict[str, str]) -> Any:
        api, kind = KINDS[resource]
        listed = [
            {name: value for name, value in stored.items() if name not in ("apiVersion", "kind")}
            for key, stored in sorted(self._objects.known.items())
            if key.startswith(f"{resource}/{namespace}") and _is_selected(stored, query)
        ]
        first, limit = int(query.get("continue", 0)), int(query.get("limit", len(listed) or 1))
        rest = first + limit < len(listed)
        more = {"continue": str(first + limit)} if rest else {}
        items = listed[first : first + limit]
        return {"apiVersion": api, "kind": f"{kind}List", "metadata": more, "items": items}

    def _change(self, method: str, key: str, thing: Any, type: str, body: Any, dry: bool) -> Any:
        resource = key.partition("/")[0]
        if method == "DELETE":
            if body["preconditions"]["uid"] != thing["metadata"]["uid"]:
                raise Failure(409, "Conflict", "the UID in the precondition differs")
            if not dry:
                self._objects.remove(key)
            return thing
        if method == "PUT":
            validate(body, VERSION, strict=True)
            after = apply_merge_patch(thing, {"spec": body["spec"], "metadata": body["metadata"]})
        elif type == "application/merge-patch+json":
            after = apply_merge_patch(thing, body)
        elif type == "application/json-patch+json":
            after = apply_patch(thing, body)
        else:
            raise Failure(415, "UnsupportedMediaType", f"the body is {type}")
        if after["metadata"]["resourceVersion"] != thing["metadata"]["resourceVersion"]:
            raise Failure(409, "Conflict", "the object has been modified")
        if after["spec"] != thing["spec"] and "generation" in thing["metadata"]:
            after["metadata"]["generation"] += 1
        validate(after, VERSION, strict=True)
        if not dry:
            self._objects.put(resource, after)
        return _scale(after) if method == "PUT" else after


def _where(path: str) -> tuple[str, str, str, str]:
    words = path.strip("/").split("/")
    words = words[3:] if words[0] == "apis" else words[2:]
    namespace = ""
    if words[0] == "namespaces":
        _, namespace, *words = words
    resource, name, sub, *_ = [*words, "", ""]
    if resource not in KINDS:
        raise Failure(404, "NotFound", f"there is no resource {resource}")
    return resource, namespace, name, sub


def _is_selected(thing: Any, query: dict[str, str]) -> bool:
    labels = thing["metadata"].get("labels", {})
    selectors = [pair.split("=") for pair in query.get("labelSelector", "").split(",") if pair]
    if any(labels.get(name) != value for name, value in selectors):
        return False
    field, _, value = query.get("fieldSelector", "").partition("=")
    return not field or thing.get(field) == value


def _scale(thing: Any) -> Any:
    meta = thing["metadata"]
    metadata = {name: meta[name] for name in ("name", "namespace", "uid", "resourceVersion")}
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": metadata,
        "spec": {"replicas": thing["spec"]["replicas"]},
        "status": {"replicas": thing.get("status", {}).get("replicas", 0)},
    }


class ApiHandler(Handler):
    """Serves the API, and under `/emulator` what tests arrange."""

    objects: Objects

    def answer(self) -> None:
        text = self.read_body()
        body = json.loads(text) if text else None
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        with self.objects.lock:
            try:
                if self.path.startswith("/emulator/"):
                    code, reply = 200, self._arrange(self.path.split("/")[2], body)
                else:
                    kind = self.headers.get("Content-Type", "")
                    server = ApiServer(self.objects)
                    code, reply = 200, server.answer(self.command, self.path, token, kind, body)
                    validate(reply, VERSION, strict=True)
            except Failure as failure:
                code, reply = failure.code, failure.body
        if self.objects.held and self.command in ("PUT", "PATCH", "DELETE"):
            threading.Event().wait()
        self.reply(code, json.dumps(reply).encode(), Content_Type="application/json")

    def _arrange(self, name: str, body: Any) -> Any:
        if name == "hold":
            self.objects.held = True
        else:
            self.objects.put(name, body)
        return {}


if __name__ == "__main__":
    ApiHandler.objects = Objects(Path(sys.argv[2]))
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), ApiHandler).serve_forever()
