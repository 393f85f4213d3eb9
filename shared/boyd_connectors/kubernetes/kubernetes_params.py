"""The parameters of actions on a Kubernetes cluster, and the credentials of each."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from boyd.models import Model
from boyd.plugins.http_service import HttpAccess

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
