"""The API of a Kubernetes cluster: lists page by page, reads, and guarded changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from boyd.models import Model
from boyd.plugin import Context, Secret
from boyd.plugins.http_service import HttpAccess, HttpService, ServiceError, StateError

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


#: Where a pod finds the credentials of its service account.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: Objects in a page, and the most pages of a list.
PAGE, MAX_PAGES = 250, 40

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
