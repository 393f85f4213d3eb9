"""Checks HTTP endpoints and restarts those that fail."""

from boyd.plugins.http_monitor.options import (
    CommandRestart,
    Endpoint,
    FunctionRestart,
    HttpRestart,
    Options,
)
from boyd.plugins.http_monitor.plugin import HttpMonitor, RestartParams

__all__ = [
    "CommandRestart",
    "Endpoint",
    "FunctionRestart",
    "HttpMonitor",
    "HttpRestart",
    "Options",
    "RestartParams",
]
