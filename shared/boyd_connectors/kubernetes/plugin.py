"""The plugin `kubernetes`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from boyd.models import ActionResult, EffectVerdict, JsonObject, Model, Observation
from boyd.plugin import Connector, Context, Observer, action, tool
from boyd.plugins.http_service import HttpAccess, HttpService, change
from boyd.settings.validation import BaseUrl
from boyd_connectors.connector_parts import (
    CheckReport,
    Sample,
    SeparateReads,
    approval_preview,
    names_in_alarm,
)
from boyd_connectors.kubernetes import cluster_health as health
from boyd_connectors.kubernetes.cluster import (
    REVISION,
    Cluster,
    ClusterChanges,
    in_cluster,
    is_of,
    pod_path,
)

APPS, CORE = "/apis/apps/v1", "/api/v1"
_KINDS = ("deployment", "statefulset", "daemonset")
#: Seconds of a look, and those after which no other list is begun.
TIME, READ_TIME = 60.0, 35.0

_NAME = r"[a-z0-9][a-z0-9.-]{0,252}"
Namespace = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]


class KubernetesActions(BaseModel):
    """The actions that are enabled, each with its credentials."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    restart: HttpAccess | None = None
    scale: HttpAccess | None = None
    rollout_undo: HttpAccess | None = None
    cordon: HttpAccess | None = None
    uncordon: HttpAccess | None = None
    delete_pod: HttpAccess | None = None


class WorkloadParams(Model):
    """A workload as `namespace/kind/name`."""

    workload: str = Field(
        pattern=rf"^[a-z0-9-]{{1,63}}/(deployment|statefulset|daemonset)/{_NAME}$",
        description="namespace/kind/name, such as shop/deployment/web",
    )


class ScaleParams(Model):
    """A workload as `namespace/kind/name`, and how many pods it should have."""

    workload: str = Field(pattern=rf"^[a-z0-9-]{{1,63}}/(deployment|statefulset)/{_NAME}$")
    replicas: int = Field(ge=0, le=10_000)


class RolloutUndoParams(Model):
    """A deployment as `namespace/deployment/name`, and a revision; without one, the one before."""

    workload: str = Field(pattern=rf"^[a-z0-9-]{{1,63}}/deployment/{_NAME}$")
    revision: int | None = Field(default=None, ge=1)


class NodeParams(Model):
    """A node by its name."""

    node: str = Field(pattern=rf"^{_NAME}$")


class PodParams(Model):
    """A pod as `namespace/name`."""

    pod: str = Field(pattern=rf"^[a-z0-9-]{{1,63}}/{_NAME}$")


class NamespaceParams(Model):
    """A namespace."""

    namespace: Namespace


class Kubernetes(Connector):
    """Watches a Kubernetes cluster, and restarts, scales and undoes what its options enable."""

    id = "kubernetes"

    class Options(Connector.Options):
        """The plugin's options; times in seconds.

        Attributes:
            url: of the API server.
            access: the credentials to read with; by default those of the worker's service account.
            namespaces: the namespaces to watch and act in; empty: all.
            samples: how many checks in a row a workload must not be ready.
            pending_after: how long a pod may be pending.
            event_age: the age up to which warning events are observed.
            max_replicas: the most replicas that `scale` sets.
        """

        url: BaseUrl = "https://kubernetes.default.svc"
        access: HttpAccess | None = None
        namespaces: list[Namespace] = Field(default_factory=list, max_length=50)
        interval: float = Field(default=30.0, gt=0)
        timeout: float = Field(default=10.0, gt=0, le=60)
        samples: int = Field(default=2, ge=1, le=100)
        pending_after: float = Field(default=120.0, ge=0)
        event_age: float = Field(default=300.0, gt=0)
        max_items: int = Field(default=50, ge=1, le=1000)
        max_replicas: int = Field(default=50, ge=1, le=10_000)
        actions: KubernetesActions = KubernetesActions()

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._reads = SeparateReads(READ_TIME)
        self.components = (
            self._observer("workloads", "Find workloads whose pods are not ready.", self.workloads),
            self._observer("pods", "Find pods that fail or are pending.", self.pods),
            self._observer("nodes", "Find nodes in trouble.", self.nodes),
            self._observer("events", "Find warning events.", self.events),
        )

    # Observers

    def workloads(self, ctx: Context) -> list[Observation]:
        """Find deployments, stateful sets and daemon sets whose pods are not ready."""
        things, lost = self._lists(ctx, APPS, *(f"{kind}s" for kind in _KINDS))
        workloads = {
            health.name_of(thing, resource[:-1]): (resource[:-1], thing)
            for resource, thing in things
        }
        samples = {name: _readiness(*workload) for name, workload in workloads.items()}
        unread = {(trouble.data["namespace"], trouble.data["list"]) for trouble in lost}

        def is_unseen(workload: str) -> bool:
            namespace, kind, _ = workload.split("/")
            return not unread.isdisjoint({(namespace, f"{kind}s"), ("*", f"{kind}s")})

        bad = names_in_alarm(ctx, "workloads", samples, self.options.samples, is_unseen)
        troubles = [*lost, *(health.workload_trouble(*workloads[name]) for name in sorted(bad))]
        return self._report(ctx, troubles, "workloads", workloads=len(workloads), unready=len(bad))

    def pods(self, ctx: Context) -> list[Observation]:
        """Find pods whose containers do not start, and pods that are pending."""
        things, lost = self._lists(ctx, CORE, "pods")
        pods = [pod for _, pod in things]
        troubles = health.pod_troubles(pods, ctx.now(), self.options.pending_after)
        return self._report(ctx, [*lost, *troubles], "pods", pods=len(pods))

    def nodes(self, ctx: Context) -> list[Observation]:
        """Find nodes that are not ready or short of something."""
        nodes = list(self._cluster(ctx).list(CORE, "nodes"))
        cordoned = sum(1 for node in nodes if node["spec"].get("unschedulable"))
        troubles = health.node_troubles(nodes)
        return self._report(ctx, troubles, "nodes", nodes=len(nodes), cordoned=cordoned)

    def events(self, ctx: Context) -> list[Observation]:
        """Find recent warning events."""
        since = ctx.now() - timedelta(seconds=self.options.event_age)
        things, lost = self._lists(ctx, CORE, "events", fieldSelector="type=Warning")
        warnings = list(health.warnings_since((event for _, event in things), since))
        return self._report(ctx, [*lost, *warnings], "events", warnings=len(warnings))

    # Tools

    @tool()
    def describe_workload(self, params: WorkloadParams, ctx: Context) -> JsonObject:
        """Describe a workload: its images, pods that are ready, conditions and progress."""
        kind, thing = _kind(params.workload), self._changes("", ctx).workload(params.workload)
        containers = thing["spec"]["template"]["spec"]["containers"]
        return {
            "images": {container["name"]: container["image"] for container in containers},
            "progress": health.progress(kind, thing)[1],
            "conditions": thing.get("status", {}).get("conditions", [])[:20],
            "revision": thing["metadata"].get("annotations", {}).get(REVISION),
        }

    @tool()
    def list_pods(self, params: NamespaceParams, ctx: Context) -> JsonObject:
        """List the pods of a namespace with phase, node, restarts and readiness."""
        self._changes("", ctx).check_namespace(params.namespace)
        pods = list(self._cluster(ctx).list(CORE, "pods", params.namespace))
        rows: list[Any] = [_pod_row(pod) for pod in pods[: self.options.max_items]]
        return {"pods": rows, "count": len(pods)}

    # Actions on workloads

    @action(
        risk="medium",
        reversibility="irreversible",
        autonomy="approval-required",
        target="workload",
    )
    def restart(self, params: WorkloadParams, ctx: Context) -> JsonObject | ActionResult:
        """Replace the pods of a workload one after the other, as `kubectl rollout restart`."""
        return change(lambda: self._changes("restart", ctx).restart(params.workload, ctx.now()))

    @restart.dry_run
    def _would_restart(self, params: WorkloadParams, ctx: Context) -> JsonObject:
        return self._changes("restart", ctx, dry=True).restart(params.workload, ctx.now())

    @restart.verify(within=300, every=5)
    def _is_restarted(self, params: WorkloadParams, ctx: Context) -> EffectVerdict:
        return self._rollout_verdict("restart", params.workload, ctx)

    @action(risk="medium", autonomy="approval-required", target="workload")
    def scale(self, params: ScaleParams, ctx: Context) -> JsonObject | ActionResult:
        """Set the number of pods of a workload."""
        changes = self._changes("scale", ctx, preview=approval_preview(ctx))
        return change(lambda: changes.scale(params.workload, params.replicas))

    @scale.dry_run
    def _would_scale(self, params: ScaleParams, ctx: Context) -> JsonObject:
        return self._changes("scale", ctx, dry=True).scale(params.workload, params.replicas)

    @scale.rollback
    def _scale_back(self, params: ScaleParams, result: ActionResult, ctx: Context) -> JsonObject:
        before = _output(result)["before"]
        return self._changes("scale", ctx).scale(params.workload, before, params.replicas)

    @scale.verify(within=300, every=5)
    def _is_scaled(self, params: ScaleParams, ctx: Context) -> EffectVerdict:
        thing = self._changes("scale", ctx).workload(params.workload)
        desired, ready = health.pod_counts(_kind(params.workload), thing)
        pods = thing.get("status", {}).get("replicas", 0)
        text = f"{desired} pods are wanted, {pods} exist, {ready} are ready"
        return _verdict(desired == pods == ready == params.replicas, text)

    @action(risk="high", autonomy="approval-required", target="workload")
    def rollout_undo(self, params: RolloutUndoParams, ctx: Context) -> JsonObject | ActionResult:
        """Go back to an earlier revision of a deployment, as `kubectl rollout undo`."""
        changes = self._changes("rollout_undo", ctx, preview=approval_preview(ctx))
        return change(lambda: changes.undo(params.workload, params.revision))

    @rollout_undo.dry_run
    def _would_undo(self, params: RolloutUndoParams, ctx: Context) -> JsonObject:
        return self._changes("rollout_undo", ctx, dry=True).undo(params.workload, params.revision)

    @rollout_undo.rollback
    def _redo(self, params: RolloutUndoParams, result: ActionResult, ctx: Context) -> JsonObject:
        was = _output(result)
        return self._changes("rollout_undo", ctx).redo(params.workload, was["from"], was["to"])

    @rollout_undo.verify(within=300, every=5)
    def _is_undone(self, params: RolloutUndoParams, ctx: Context) -> EffectVerdict:
        return self._rollout_verdict("rollout_undo", params.workload, ctx)

    # Actions on nodes and pods

    @action(risk="medium", autonomy="approval-required", target="node")
    def cordon(self, params: NodeParams, ctx: Context) -> JsonObject | ActionResult:
        """Keep new pods off a node; those on it stay."""
        return change(lambda: self._changes("cordon", ctx).cordon(params.node, True))

    @cordon.dry_run
    def _would_cordon(self, params: NodeParams, ctx: Context) -> JsonObject:
        return self._changes("cordon", ctx, dry=True).cordon(params.node, True)

    @cordon.rollback
    def _cordon_back(self, params: NodeParams, ctx: Context) -> JsonObject:
        return self._changes("cordon", ctx).cordon(params.node, False)

    @cordon.verify(within=30, every=5)
    def _is_cordoned(self, params: NodeParams, ctx: Context) -> EffectVerdict:
        return self._is(params.node, True, self._cluster(ctx, "cordon"))

    @action(risk="low", autonomy="approval-required", target="node")
    def uncordon(self, params: NodeParams, ctx: Context) -> JsonObject | ActionResult:
        """Let new pods onto a node again."""
        return change(lambda: self._changes("uncordon", ctx).cordon(params.node, False))

    @uncordon.dry_run
    def _would_uncordon(self, params: NodeParams, ctx: Context) -> JsonObject:
        return self._changes("uncordon", ctx, dry=True).cordon(params.node, False)

    @uncordon.rollback
    def _uncordon_back(self, params: NodeParams, ctx: Context) -> JsonObject:
        return self._changes("uncordon", ctx).cordon(params.node, True)

    @uncordon.verify(within=30, every=5)
    def _is_uncordoned(self, params: NodeParams, ctx: Context) -> EffectVerdict:
        return self._is(params.node, False, self._cluster(ctx, "uncordon"))

    @action(
        risk="medium",
        reversibility="irreversible",
        autonomy="approval-required",
        target="pod",
    )
    def delete_pod(self, params: PodParams, ctx: Context) -> JsonObject | ActionResult:
        """Delete a pod that its controller replaces."""
        return change(lambda: self._changes("delete_pod", ctx).delete_pod(params.pod))

    @delete_pod.dry_run
    def _would_delete(self, params: PodParams, ctx: Context) -> JsonObject:
        return self._changes("delete_pod", ctx, dry=True).delete_pod(params.pod)

    @delete_pod.verify(within=180, every=5)
    def _is_deleted(self, params: PodParams, result: ActionResult, ctx: Context) -> EffectVerdict:
        cluster = self._cluster(ctx, "delete_pod")
        output: Any = result.output if isinstance(result.output, dict) else {}
        pod = cluster.find(pod_path(params.pod))
        if pod is not None and output.get("uid", pod["metadata"]["uid"]) == pod["metadata"]["uid"]:
            if not output:
                text = "a pod of that name exists; it may be another one by now"
                return EffectVerdict(verdict="cannot tell", evidence=text, final=False)
            return _verdict(False, "the pod still exists")
        if pod is None or health.owner_of(pod) is None:
            return _verdict(True, "the pod is gone")
        ready = [c["status"] for c in pod["status"].get("conditions", []) if c["type"] == "Ready"]
        return _verdict(ready == ["True"], f"another pod has its name; ready: {ready}")

    # What they share

    def _rollout_verdict(self, name: str, workload: str, ctx: Context) -> EffectVerdict:
        thing = self._changes(name, ctx).workload(workload)
        if not is_of(thing, ctx.execution_id):
            return _verdict(False, "its template is not, or no longer, what this execution made it")
        complete, text = health.progress(_kind(workload), thing)
        if not complete and health.is_stuck(thing):
            return EffectVerdict(verdict="worse", evidence=f"the rollout is stuck: {text}")
        return _verdict(complete, text)

    def _is(self, node: str, cordoned: bool, cluster: Cluster) -> EffectVerdict:
        actual = bool(cluster.read(f"{CORE}/nodes/{node}")["spec"].get("unschedulable"))
        return _verdict(actual == cordoned, f"it is {'' if actual else 'not '}cordoned")

    def _changes(
        self, name: str, ctx: Context, *, dry: bool = False, preview: JsonObject | None = None
    ) -> ClusterChanges:
        options = self.options
        return ClusterChanges(
            self._cluster(ctx, name),
            options.namespaces,
            options.max_replicas,
            dry=dry,
            execution=ctx.execution_id,
            preview=preview,
        )

    def _cluster(self, ctx: Context, name: str = "") -> Cluster:
        """The cluster, with the credentials of an action or those to read with."""
        reading = self.options.access or in_cluster()
        access = self.access_of(name, reading) if name else reading
        return Cluster(HttpService(self.options.url, access, self.options.timeout), ctx)

    def _lists(
        self, ctx: Context, api: str, *resources: str, **query: str
    ) -> tuple[list[tuple[str, Any]], list[health.Trouble]]:
        """The objects with their resource, and the lists that cannot be read.

        There is a list of each resource in each namespace; nothing is seen in those that are lost.
        """
        lists = {
            f"{namespace} {resource}": (namespace, resource)
            for resource in resources
            for namespace in self.options.namespaces or [""]
        }

        def read(name: str) -> list[tuple[str, Any]]:
            namespace, resource = lists[name]
            objects = self._cluster(ctx).list(api, resource, namespace, **query)
            return [(resource, thing) for thing in objects]

        results, lost = self._reads.make(lists, read)
        troubles = []
        for name, error in lost.items():
            data: JsonObject = {"namespace": lists[name][0] or "*", "list": lists[name][1]}
            troubles.append(health.Trouble("unreadable", "error", {**data, "error": error}))
        return [item for items in results.values() for item in items], troubles

    def _observer(self, name: str, about: str, observe: Callable[..., Any]) -> Observer:
        return Observer(
            name=name,
            description=about,
            interval=self.options.interval,
            timeout=TIME,
            observe=observe,
        )

    def _report(
        self, ctx: Context, troubles: Iterable[health.Trouble], source: str, **counts: int
    ) -> list[Observation]:
        report = CheckReport(ctx, self.options.max_items)
        for trouble in troubles:
            report.add(*trouble)
        return report.observations(source, **counts)


def _kind(workload: str) -> str:
    return workload.split("/")[1]


def _readiness(kind: str, thing: Any) -> Sample:
    desired, ready = health.pod_counts(kind, thing)
    # While a rollout is stuck, the old pods may all be ready.
    return Sample(float(ready < desired or health.is_stuck(thing)), limit=1.0, clear=1.0)


def _pod_row(pod: Any) -> JsonObject:
    status = pod.get("status", {})
    containers = status.get("containerStatuses", [])
    return {
        "pod": health.name_of(pod),
        "phase": status.get("phase"),
        "node": pod["spec"].get("nodeName"),
        "restarts": sum(container["restartCount"] for container in containers),
        "ready": sum(1 for container in containers if container["ready"]),
        "containers": len(containers),
    }


def _output(result: ActionResult) -> Any:
    return result.output


def _verdict(effective: bool, evidence: str) -> EffectVerdict:
    """Effective, or without effect so far."""
    if effective:
        return EffectVerdict(verdict="effective", evidence=evidence)
    return EffectVerdict(verdict="no effect", evidence=evidence, final=False)
