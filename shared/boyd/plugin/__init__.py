"""The plugin API: components, hooks, context, and the host that calls them."""

from boyd.plugin.components import (
    Action,
    Component,
    Endpoint,
    Observer,
    Orienter,
    Perform,
    Strategy,
    Tool,
)
from boyd.plugin.composed_action import Procedure, ProcedurePlugin
from boyd.plugin.context import AgentInfo, ApprovalReader, Context, Graph, Llm, News, State
from boyd.plugin.decorators import action, endpoint, observer, orienter, strategy, tool
from boyd.plugin.hooks import hook
from boyd.plugin.host import Hook, PluginHost
from boyd.plugin.plugin_base import Connector, Plugin, Secret

__all__ = [
    "Action",
    "AgentInfo",
    "ApprovalReader",
    "Component",
    "Connector",
    "Context",
    "Endpoint",
    "Graph",
    "Hook",
    "Llm",
    "News",
    "Observer",
    "Orienter",
    "Perform",
    "Plugin",
    "PluginHost",
    "Procedure",
    "ProcedurePlugin",
    "Secret",
    "State",
    "Strategy",
    "Tool",
    "action",
    "endpoint",
    "hook",
    "observer",
    "orienter",
    "strategy",
    "tool",
]
