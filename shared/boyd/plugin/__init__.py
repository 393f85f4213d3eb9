"""What a plugin is: component classes, hook specifications, and the host that calls them."""

from boyd.plugin.base import Plugin
from boyd.plugin.components import (
    Action,
    Component,
    Endpoint,
    Observer,
    Orienter,
    Perform,
    Strategy,
    action,
    endpoint,
    observer,
    orienter,
    strategy,
)
from boyd.plugin.context import AgentInfo, Context, State
from boyd.plugin.hooks import hook
from boyd.plugin.host import Hook, PluginHost

__all__ = [
    "Action",
    "AgentInfo",
    "Component",
    "Context",
    "Endpoint",
    "Hook",
    "Observer",
    "Orienter",
    "Perform",
    "Plugin",
    "PluginHost",
    "State",
    "Strategy",
    "action",
    "endpoint",
    "hook",
    "observer",
    "orienter",
    "strategy",
]
