"""The plugin `prometheus`: queries, targets and alerts of Prometheus, silences of Alertmanager."""

from boyd_connectors.prometheus.alerts import WatchedQuery
from boyd_connectors.prometheus.plugin import Prometheus

__all__ = ["Prometheus", "WatchedQuery"]
