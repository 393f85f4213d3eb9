"""The API of a Kubernetes cluster: lists page by page, and changes that fit what was read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from boyd.models import JsonObject
from boyd.plugin import Context, Secret
from boyd.plugins.http_service import HttpAccess, HttpService, ServiceError, StateError
from boyd.plugins.results import difference
from boyd_connectors.kubernetes.cluster_health import owner_of, pod_counts

#: Where a pod finds the credentials of its service account.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: Objects in a page, and the most pages of a list.
PAGE, MAX_PAGES = 250, 40
#: The annotation with which `kubectl rollout restart` changes a template.
RESTARTED = "kubectl.kubernetes.io/restartedAt"
REVISION = "deployment.kubernetes.io/revision"
#: The annotation of a workload with the execution that has last changed its template.
EXECUTION = "boyd/execution"
#: The most paths that are named of what differs.
MAX_PATHS = 50

PatchType = Literal["merge-patch", "json-patch"]


def in_cluster() -> HttpAccess:
    """The credentials of the worker's own pod."""
    token = Secret(file=SERVICE_ACCOUNT / "token")
    return HttpAccess(token=token, ca_file=SERVICE_ACCOUNT / "ca.crt")


def workload_path(workload: str) -> str:
    """The path of a workload that is named `namespace/kind/name`."""
    namespace, kind, name = workload.split("/")
    return f"/apis/apps/v1/namespaces/{namespace}/{kind}s/{name}"


def pod_path(pod: str) -> str:
    """The path of a pod that is named `namespace/name`."""
    namespace, name = pod.split("/")
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


class Cluster:
    """A cluster, with certain credentials."""

    def __init__(self, service: HttpService, ctx: Context) -> None:
        self._service = service
        self._ctx = ctx

    def list(self, api: str, resource: str, namespace: str = "", **query: str) -> Iterator[Any]:
        """The objects of a kind, in a namespace or in all.

        Raises:
            ServiceError: the list cannot be read, or is too long.
        """
        within = f"/namespaces/{namespace}" if namespace else ""
        after = ""
        for _ in range(MAX_PAGES):
            more = {"continue": after} if after else {}
            page = self.read(f"{api}{within}/{resource}", limit=PAGE, **query, **more)
            yield from page["items"]
            after = page["metadata"].get("continue") or ""
            if not after:
                return
        raise ServiceError(
            f"there are more than {MAX_PAGES * PAGE} {resource}: name fewer `namespaces`"
        )

    def read(self, path: str, **query: Any) -> Any:
        """The object or list at *path*.

        Raises:
            ServiceError: it cannot be read; its status is 404 if there is none.
        """
        return self._service.get(self._ctx, path, **query)

    def find(self, path: str) -> Any | None:
        """The object at *path*; None if there is none."""
        try:
            return self.read(path)
        except ServiceError as error:
            if error.status == 404:
                return None
            raise

    def patch(self, path: str, body: Any, type: PatchType, *, dry: bool = False) -> Any:
        """Patch an object; *dry* has the API server only check that."""
        headers = {"Content-Type": f"application/{type}+json"}
        return self._change("PATCH", path, body, dry, headers)

    def put(self, path: str, body: Any, *, dry: bool = False) -> Any:
        """Replace an object, unless it has changed since it was read."""
        return self._change("PUT", path, body, dry)

    def delete(self, path: str, uid: str, *, dry: bool = False) -> Any:
        """Delete the object with that *uid*, not another one of the same name."""
        return self._change("DELETE", path, {"preconditions": {"uid": uid}}, dry)

    def _change(
        self,
        method: Literal["PATCH", "PUT", "DELETE"],
        path: str,
        body: Any,
        dry: bool,
        headers: dict[str, str] | None = None,
    ) -> Any:
        params = {"fieldManager": "boyd"} if method != "DELETE" else {}
        if dry:
            params["dryRun"] = "All"
        try:
            return self._service.send(
                self._ctx, method, path, body=body, params=params, headers=headers
            )
        except ServiceError as error:
            # 422: the test of a JSON patch has failed.
            if error.status == 409 or (error.status == 422 and isinstance(body, list)):
                raise StateError(f"it has changed, so nothing was done: {error}") from None
            raise


class ClusterChanges:
    """Changes a cluster; *dry* has the API server check everything, and change nothing.

    Every method raises `StateError` if the cluster is not as the change needs it, or differs from
    the *preview* that was approved.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespaces: Collection[str],
        max_replicas: int,
        *,
        dry: bool = False,
        execution: str | None = None,
        preview: JsonObject | None = None,
    ) -> None:
        self._cluster = cluster
        self._namespaces = namespaces
        self._max_replicas = max_replicas
        self._dry = dry
        self._execution = execution or ""
        self._preview = preview or {}

    def check_namespace(self, namespace: str) -> None:
        """Check that *namespace* is among those to work in."""
        if self._namespaces and namespace not in self._namespaces:
            raise StateError(f"namespace {namespace} is not among the option `namespaces`")

    def workload(self, workload: str) -> Any:
        """A workload that is named `namespace/kind/name`."""
        self.check_namespace(workload.split("/")[0])
        return self._cluster.read(workload_path(workload))

    def restart(self, workload: str, now: datetime) -> JsonObject:
        """Replace the pods of a workload one after the other."""
        thing = self._workload_to_change(workload)
        time = now.isoformat(timespec="seconds")
        body = {
            "metadata": {
                "resourceVersion": thing["metadata"]["resourceVersion"],
                "annotations": {EXECUTION: self._execution},
            },
            "spec": {"template": {"metadata": {"annotations": {RESTARTED: time}}}},
        }
        path = workload_path(workload)
        after = self._cluster.patch(path, body, "merge-patch", dry=self._dry)
        desired, ready = pod_counts(workload.split("/")[1], thing)
        if self._dry:
            return {"replaces": f"{desired} pods, of which {ready} are ready"}
        return {"generation": after["metadata"]["generation"], "pods": desired}

    def scale(self, workload: str, replicas: int, expected: int | None = None) -> JsonObject:
        """Set the number of pods; with *expected*, put it back if it is that now."""
        if replicas > self._max_replicas and expected is None:
            raise StateError(f"{replicas} replicas; the most is {self._max_replicas}")
        self.check_namespace(workload.split("/")[0])
        path = f"{workload_path(workload)}/scale"
        current = self._cluster.read(path)
        before = current["spec"].get("replicas", 0)
        if expected is not None and before != expected:
            raise StateError(f"{workload} has {before} replicas by now, not {expected}")
        self._check_preview(workload, "before", before)
        if before == replicas:
            raise StateError(f"{workload} has {replicas} replicas already")
        self._cluster.put(path, {**current, "spec": {"replicas": replicas}}, dry=self._dry)
        if self._dry:
            text = difference({"replicas": before}, {"replicas": replicas}, workload)
            return {"before": before, "difference": [*text.splitlines()]}
        return {"before": before, "now": replicas}

    def undo(self, workload: str, revision: int | None) -> JsonObject:
        """Take the pod template of another revision of a deployment."""
        deployment = self._workload_to_change(workload)
        replica_sets = revisions(self._cluster, workload, deployment)
        template, chosen = (
            deployment["spec"]["template"],
            choose(replica_sets, revision),
        )
        then = template_of(chosen)
        current = [
            replica_set for replica_set in replica_sets if template_of(replica_set) == template
        ]
        if template == then or not current:
            which = (
                "that revision already" if template == then else "a template of no known revision"
            )
            raise StateError(f"{workload} has {which}")
        self._check_preview(workload, "before", revision_of(current[0]))
        self._check_preview(workload, "revision", revision_of(chosen))
        self._replace(workload, deployment, then)
        if self._dry:
            before, after = images(template), images(then)
            text = difference(before, after, "the images")
            paths: list[Any] = [*differing(template, then)]
            return {
                "before": revision_of(current[0]),
                "revision": revision_of(chosen),
                "difference": [*text.splitlines()],
                "differs in": paths,
            }
        return {"from": current[0]["metadata"]["name"], "to": chosen["metadata"]["name"]}

    def redo(self, workload: str, origin: str, current: str) -> JsonObject:
        """Take the template of the replica set *origin* again, if it is still that of *current*."""
        deployment = self._workload_to_change(workload)
        replica_sets = revisions(self._cluster, workload, deployment)
        templates = {
            replica_set["metadata"]["name"]: template_of(replica_set)
            for replica_set in replica_sets
        }
        if templates.get(current) != deployment["spec"]["template"] or origin not in templates:
            raise StateError(f"{workload} has been changed since, or {origin} is gone")
        self._replace(workload, deployment, templates[origin])
        return {"from": current, "to": origin}

    def cordon(self, node: str, cordoned: bool) -> JsonObject:
        """Keep new pods off a node, or let them onto it."""
        path = f"/api/v1/nodes/{node}"
        thing = self._cluster.read(path)
        if bool(thing["spec"].get("unschedulable")) == cordoned:
            raise StateError(f"node {node} is {'' if cordoned else 'not '}cordoned already")
        version = thing["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "spec": {"unschedulable": cordoned}}
        self._cluster.patch(path, body, "merge-patch", dry=self._dry)
        if self._dry:
            before, after = {"unschedulable": not cordoned}, {"unschedulable": cordoned}
            return {"difference": [*difference(before, after, f"node {node}").splitlines()]}
        return {"unschedulable": cordoned}

    def delete_pod(self, pod: str) -> JsonObject:
        """Delete a pod that its controller replaces."""
        self.check_namespace(pod.split("/")[0])
        thing = self._cluster.read(pod_path(pod))
        owner = owner_of(thing)
        if owner is None:
            raise StateError(f"pod {pod} has no controller that would replace it")
        uid = thing["metadata"]["uid"]
        self._cluster.delete(pod_path(pod), uid, dry=self._dry)
        return {"uid": uid, "replacedBy": f"{owner['kind'].lower()}/{owner['name']}"}

    def _check_preview(self, workload: str, name: str, now: int) -> None:
        """Refuse what is no longer as the preview has shown it to those who approved."""
        then = self._preview.get(name, now)
        if now != then:
            raise StateError(
                f"{workload} has changed since it was approved: {name} was {then}, and is {now}"
            )

    def _workload_to_change(self, workload: str) -> Any:
        thing = self.workload(workload)
        if thing["spec"].get("paused"):
            raise StateError(f"{workload}: its rollout is paused; resume it first")
        return thing

    def _replace(self, workload: str, deployment: Any, template: Any) -> None:
        body = replace_template(deployment, template, self._execution)
        self._cluster.patch(workload_path(workload), body, "json-patch", dry=self._dry)


def is_of(thing: Any, execution: str | None) -> bool:
    """True if this execution was the last to change the template of a workload."""
    return bool(thing["metadata"].get("annotations", {}).get(EXECUTION) == (execution or ""))


def revisions(cluster: Cluster, workload: str, deployment: Any) -> list[Any]:
    """The replica sets of a deployment, the latest revision first."""
    namespace = workload.split("/")[0]
    uid = deployment["metadata"]["uid"]
    labels = deployment["spec"]["selector"].get("matchLabels", {})
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    replica_sets = cluster.list("/apis/apps/v1", "replicasets", namespace, labelSelector=selector)
    owned = [
        replica_set
        for replica_set in replica_sets
        if any(ref["uid"] == uid for ref in replica_set["metadata"].get("ownerReferences", []))
    ]
    return sorted(owned, key=revision_of, reverse=True)


def revision_of(replica_set: Any) -> int:
    """The revision of a deployment that a replica set has."""
    return int(replica_set["metadata"].get("annotations", {}).get(REVISION, 0))


def template_of(replica_set: Any) -> dict[str, Any]:
    """The pod template of a revision, as the deployment had it."""
    template: dict[str, Any] = dict(replica_set["spec"]["template"])
    meta = dict(template.get("metadata", {}))
    labels = dict(meta.get("labels", {}))
    labels.pop("pod-template-hash", None)
    template["metadata"] = {**meta, "labels": labels}
    return template


def choose(replica_sets: list[Any], revision: int | None) -> Any:
    """The replica set of *revision*, or of the one before the latest.

    Raises:
        StateError: there is none.
    """
    if revision is None:
        if len(replica_sets) < 2:
            raise StateError("there is no earlier revision")
        return replica_sets[1]
    for replica_set in replica_sets:
        if revision_of(replica_set) == revision:
            return replica_set
    numbers = ", ".join(str(revision_of(replica_set)) for replica_set in replica_sets) or "none"
    raise StateError(f"there is no revision {revision}; known: {numbers}")


def replace_template(
    deployment: Any, template: Mapping[str, Any], execution: str
) -> list[JsonObject]:
    """A JSON patch that sets the template, unless the deployment has changed meanwhile."""
    version = deployment["metadata"]["resourceVersion"]
    annotations = {**deployment["metadata"].get("annotations", {}), EXECUTION: execution}
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": "/metadata/annotations", "value": annotations},
        {"op": "replace", "path": "/spec/template", "value": dict(template)},
    ]


def images(template: Mapping[str, Any]) -> JsonObject:
    """The images of a template by container."""
    return {container["name"]: container["image"] for container in template["spec"]["containers"]}


def differing(template: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The paths in which two templates differ; the values may be secrets."""
    return sorted(set(_paths(template, other, "")))[:MAX_PATHS]


def _paths(value: Any, other: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict) and isinstance(other, dict):
        for key in value.keys() | other.keys():
            yield from _paths(value.get(key), other.get(key), f"{path}.{key}".lstrip("."))
    elif isinstance(value, list) and isinstance(other, list) and len(value) == len(other):
        for number, (a, b) in enumerate(zip(value, other, strict=True)):
            yield from _paths(a, b, f"{path}[{number}]")
    elif value != other:
        yield path
