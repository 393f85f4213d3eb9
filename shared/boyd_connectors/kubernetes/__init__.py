"""Watches workloads, pods and nodes of a Kubernetes cluster, and restarts, scales and undoes."""

from boyd_connectors.kubernetes.plugin import Kubernetes

__all__ = ["Kubernetes"]
