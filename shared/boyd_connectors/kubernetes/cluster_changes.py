"""The changes of a cluster: each reads first, and is refused if the cluster differs by then."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from boyd.models import JsonObject
from boyd.plugins.http_service import StateError
from boyd.plugins.results import difference
from boyd_connectors.kubernetes import cluster_health
from boyd_connectors.kubernetes.cluster import Cluster, pod_path, workload_path
from boyd_connectors.kubernetes.cluster_health import owner_of, pod_counts

#: The annotation with which `kubectl rollout restart` changes a template.
RESTARTED = "kubectl.kubernetes.io/restartedAt"


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
                "annotations": {cluster_health.EXECUTION: self._execution},
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
        replica_sets = cluster_health.revisions(self._cluster, workload, deployment)
        template, chosen = (
            deployment["spec"]["template"],
            cluster_health.choose(replica_sets, revision),
        )
        then = cluster_health.template_of(chosen)
        current = [
            replica_set
            for replica_set in replica_sets
            if cluster_health.template_of(replica_set) == template
        ]
        if template == then or not current:
            which = (
                "that revision already" if template == then else "a template of no known revision"
            )
            raise StateError(f"{workload} has {which}")
        self._check_preview(workload, "before", cluster_health.revision_of(current[0]))
        self._check_preview(workload, "revision", cluster_health.revision_of(chosen))
        self._replace(workload, deployment, then)
        if self._dry:
            before, after = cluster_health.images(template), cluster_health.images(then)
            text = difference(before, after, "the images")
            paths: list[Any] = [*cluster_health.differing(template, then)]
            return {
                "before": cluster_health.revision_of(current[0]),
                "revision": cluster_health.revision_of(chosen),
                "difference": [*text.splitlines()],
                "differs in": paths,
            }
        return {"from": current[0]["metadata"]["name"], "to": chosen["metadata"]["name"]}

    def redo(self, workload: str, origin: str, current: str) -> JsonObject:
        """Take the template of the replica set *origin* again, if it is still that of *current*."""
        deployment = self._workload_to_change(workload)
        replica_sets = cluster_health.revisions(self._cluster, workload, deployment)
        templates = {
            replica_set["metadata"]["name"]: cluster_health.template_of(replica_set)
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
        body = cluster_health.replace_template(deployment, template, self._execution)
        self._cluster.patch(workload_path(workload), body, "json-patch", dry=self._dry)
