"""The trouble that objects of a cluster and their rollouts show; texts of the cluster are cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from boyd.models import JsonObject, Severity

MAX_TEXT = 300
#: Why a container waits that will not start by itself.
STUCK = {
    *("CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "InvalidImageName"),
    *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
}


class Trouble(NamedTuple):
    """A thing in trouble: the kind of observation, its severity and data."""

    kind: str
    severity: Severity
    data: JsonObject


def progress(kind: str, thing: Any) -> tuple[bool, str]:
    """True once the latest change of a workload is rolled out and ready; with its progress."""
    status = thing.get("status", {})
    desired, ready = pod_counts(kind, thing)
    updated = status.get("updatedNumberScheduled" if kind == "daemonset" else "updatedReplicas", 0)
    total = desired if kind == "daemonset" else status.get("replicas", 0)
    text = f"{ready} of {desired} pods are ready, {updated} have the latest template"
    if not is_seen(thing):
        return False, f"{text}; the controller has not seen the change yet"
    return ready == desired == updated == total, text


def is_seen(thing: Any) -> bool:
    """True if the status of a workload is about its latest change."""
    observed = thing.get("status", {}).get("observedGeneration", 0)
    return bool(observed >= thing["metadata"].get("generation", 0))


def is_stuck(thing: Any) -> bool:
    """True if a deployment has given up on its latest rollout."""
    return is_seen(thing) and any(
        condition["type"] == "Progressing" and condition.get("reason") == "ProgressDeadlineExceeded"
        for condition in thing.get("status", {}).get("conditions", [])
    )


def name_of(thing: Any, kind: str = "") -> str:
    """The name of an object with its namespace and *kind*, as parameters of actions have it."""
    meta = thing["metadata"]
    return "/".join(filter(None, (meta.get("namespace"), kind, meta["name"])))


def pod_counts(kind: str, thing: Any) -> tuple[int, int]:
    """The numbers of pods that a workload should have, and of those that are ready."""
    status = thing.get("status", {})
    if kind == "daemonset":
        return status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
    return thing["spec"].get("replicas", 1), status.get("readyReplicas", 0)


def workload_trouble(kind: str, thing: Any) -> Trouble:
    """A workload whose pods are not all ready."""
    desired, ready = pod_counts(kind, thing)
    reasons = [
        f"{condition['type']}: {condition.get('reason', '')}"
        for condition in thing.get("status", {}).get("conditions", [])
        if (condition["type"], condition["status"])
        in (("Progressing", "False"), ("ReplicaFailure", "True"))
    ]
    data: JsonObject = {
        "workload": name_of(thing, kind),
        "desired": desired,
        "ready": ready,
        "reason": "; ".join(reasons)[:MAX_TEXT],
    }
    return Trouble("workload", "warning" if ready else "error", data)


def pod_troubles(pods: Iterable[Any], now: datetime, pending_after: float) -> Iterator[Trouble]:
    """Pods with containers that do not start, and pods that are pending for too long."""
    for pod in pods:
        stuck = list(_start_failures(pod))
        yield from stuck
        status = pod.get("status", {})
        if stuck or status.get("phase") != "Pending":
            continue
        if (now - moment(pod["metadata"]["creationTimestamp"])).total_seconds() >= pending_after:
            condition: Any = next(
                (c for c in status.get("conditions", []) if c["status"] == "False"), {}
            )
            reason = f"{condition.get('reason', '')}: {condition.get('message', '')}".strip(": ")
            data: JsonObject = {"pod": name_of(pod), "reason": reason[:MAX_TEXT], **_context(pod)}
            yield Trouble("pending-pod", "warning", data)


def _start_failures(pod: Any) -> Iterator[Trouble]:
    status = pod.get("status", {})
    containers = status.get("initContainerStatuses", []) + status.get("containerStatuses", [])
    for container in containers:
        waiting = container.get("state", {}).get("waiting", {})
        if waiting.get("reason") not in STUCK:
            continue
        last_exit = container.get("lastState", {}).get("terminated", {})
        data: JsonObject = {
            "pod": name_of(pod),
            "container": container["name"],
            "reason": waiting["reason"],
            "image": container["image"],
            **(
                {"exitCode": last_exit["exitCode"], "ended": last_exit.get("reason", "")}
                if last_exit
                else {}
            ),
            **_context(pod),
        }
        yield Trouble("failing-pod", "error", data)


def owner_of(pod: Any) -> Any | None:
    """The reference to what has created a pod, and would create another one."""
    owners = pod["metadata"].get("ownerReferences", [])
    return next((owner for owner in owners if owner.get("controller")), None)


def _context(pod: Any) -> JsonObject:
    """The owner of a pod, and the node that it needs."""
    owner, node = owner_of(pod), pod.get("spec", {}).get("nodeName")
    created: JsonObject = {"owner": f"{owner['kind'].lower()}/{owner['name']}"} if owner else {}
    return {**created, "dependsOn": {name_of(pod): [node]}} if node else created


def node_troubles(nodes: Iterable[Any]) -> Iterator[Trouble]:
    """Nodes that are not ready, or short of something."""
    for node in nodes:
        for condition in node.get("status", {}).get("conditions", []):
            ready = condition["type"] == "Ready"
            if condition["status"] == ("True" if ready else "False"):
                continue
            data: JsonObject = {
                "node": node["metadata"]["name"],
                "condition": condition["type"],
                "status": condition["status"],
                "reason": condition.get("reason", "")[:MAX_TEXT],
                "cordoned": bool(node["spec"].get("unschedulable")),
            }
            yield Trouble("node", "error" if ready else "warning", data)


def warnings_since(events: Iterable[Any], since: datetime) -> Iterator[Trouble]:
    """Recent warning events, those about the same thing with the same reason once."""
    latest: dict[tuple[str, str, str], Any] = {}
    for event in events:
        about = event["involvedObject"]
        if _time_of(event) >= since:
            thing = "/".join(filter(None, (about.get("namespace"), about.get("name"))))
            latest[about.get("kind", ""), thing, event.get("reason", "")] = event
    for (kind, thing, reason), event in sorted(latest.items()):
        data: JsonObject = {
            "kind": kind,
            "object": thing,
            "reason": reason,
            "message": (event.get("message") or "")[:MAX_TEXT],
        }
        yield Trouble("event", "warning", data)


def _time_of(event: Any) -> datetime:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return moment(next(filter(None, times), None) or event["metadata"]["creationTimestamp"])


def moment(text: str) -> datetime:
    """A time of the API."""
    return datetime.fromisoformat(text)
