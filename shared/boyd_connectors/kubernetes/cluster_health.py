"""The trouble that objects of a cluster show; texts of the cluster are cut."""

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

    what: str
    severity: Severity
    data: JsonObject


def name_of(thing: Any, kind: str = "") -> str:
    """The name of an object with its namespace and *kind*, as parameters of actions have it."""
    meta = thing["metadata"]
    return "/".join(filter(None, (meta.get("namespace"), kind, meta["name"])))


def desired_and_ready(kind: str, thing: Any) -> tuple[int, int]:
    """The numbers of pods that a workload should have, and of those that are ready."""
    status = thing.get("status", {})
    if kind == "daemonset":
        return status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
    return thing["spec"].get("replicas", 1), status.get("readyReplicas", 0)


def workload_trouble(kind: str, thing: Any) -> Trouble:
    """A workload whose pods are not all ready."""
    desired, ready = desired_and_ready(kind, thing)
    reasons = [
        f"{one['type']}: {one.get('reason', '')}"
        for one in thing.get("status", {}).get("conditions", [])
        if (one["type"], one["status"]) in (("Progressing", "False"), ("ReplicaFailure", "True"))
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
        stuck = list(_stuck(pod))
        yield from stuck
        status = pod.get("status", {})
        if stuck or status.get("phase") != "Pending":
            continue
        if (now - moment(pod["metadata"]["creationTimestamp"])).total_seconds() >= pending_after:
            why: Any = next((c for c in status.get("conditions", []) if c["status"] == "False"), {})
            reason = f"{why.get('reason', '')}: {why.get('message', '')}".strip(": ")
            data: JsonObject = {"pod": name_of(pod), "reason": reason[:MAX_TEXT], **_owner(pod)}
            yield Trouble("pending-pod", "warning", data)


def _stuck(pod: Any) -> Iterator[Trouble]:
    status = pod.get("status", {})
    containers = status.get("initContainerStatuses", []) + status.get("containerStatuses", [])
    for one in containers:
        waiting = one.get("state", {}).get("waiting", {})
        if waiting.get("reason") not in STUCK:
            continue
        ended = one.get("lastState", {}).get("terminated", {})
        data: JsonObject = {
            "pod": name_of(pod),
            "container": one["name"],
            "reason": waiting["reason"],
            "image": one["image"],
            **({"exitCode": ended["exitCode"], "ended": ended.get("reason", "")} if ended else {}),
            **_owner(pod),
        }
        yield Trouble("failing-pod", "error", data)


def owner_of(pod: Any) -> Any | None:
    """The reference to what has created a pod, and would create another one."""
    owners = pod["metadata"].get("ownerReferences", [])
    return next((one for one in owners if one.get("controller")), None)


def _owner(pod: Any) -> JsonObject:
    owner = owner_of(pod)
    return {"owner": f"{owner['kind'].lower()}/{owner['name']}"} if owner else {}


def node_troubles(nodes: Iterable[Any]) -> Iterator[Trouble]:
    """Nodes that are not ready, or short of something."""
    for node in nodes:
        for one in node.get("status", {}).get("conditions", []):
            ready = one["type"] == "Ready"
            if one["status"] == ("True" if ready else "False"):
                continue
            data: JsonObject = {
                "node": node["metadata"]["name"],
                "condition": one["type"],
                "status": one["status"],
                "reason": one.get("reason", "")[:MAX_TEXT],
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
