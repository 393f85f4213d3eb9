"""The plugin `prometheus`: queries, targets and alerts of Prometheus, silences of Alertmanager."""

from boyd.plugins.prometheus.plugin import Prometheus
from boyd.plugins.prometheus.watched_query import WatchedQuery

__all__ = ["Prometheus", "WatchedQuery"]
