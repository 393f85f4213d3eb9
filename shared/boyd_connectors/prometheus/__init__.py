"""The plugin `prometheus`: queries, targets and alerts of Prometheus, silences of Alertmanager."""

from boyd_connectors.prometheus.plugin import Prometheus
from boyd_connectors.prometheus.watched_query import WatchedQuery

__all__ = ["Prometheus", "WatchedQuery"]
