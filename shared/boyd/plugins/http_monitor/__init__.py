"""Checks HTTP endpoints and restarts those that fail."""

from boyd.plugins.http_monitor.monitored_endpoint import (
    CommandRestart,
    FunctionRestart,
    HttpRestart,
    MonitoredEndpoint,
    Options,
)
from boyd.plugins.http_monitor.plugin import HttpMonitor, RestartParams

__all__ = [
    "CommandRestart",
    "FunctionRestart",
    "HttpMonitor",
    "HttpRestart",
    "MonitoredEndpoint",
    "Options",
    "RestartParams",
]
