"""All routes, in the order in which the documentation shows them."""

from __future__ import annotations

from boyd_api.http import documentation
from boyd_api.http.routing import Route
from boyd_api.mcp import mcp_routes
from boyd_api.routes import (
    action_routes,
    administration_routes,
    agent_routes,
    approval_routes,
    autonomy_routes,
    intake_routes,
    investigation_routes,
    loop_routes,
    monitoring_routes,
    plugin_routes,
    procedure_routes,
    run_routes,
)

_RESOURCES = (
    monitoring_routes.health_routes,
    agent_routes.state_routes,
    loop_routes.loop_routes,
    loop_routes.observation_routes,
    loop_routes.situation_routes,
    agent_routes.observer_routes,
    action_routes.routes,
    autonomy_routes.routes,
    procedure_routes.routes,
    approval_routes.routes,
    run_routes.routes,
    investigation_routes.routes,
    intake_routes.routes,
    plugin_routes.routes,
    mcp_routes.routes,
    agent_routes.agent_routes,
    agent_routes.control_routes,
    agent_routes.worker_routes,
    agent_routes.event_routes,
    monitoring_routes.metric_routes,
    administration_routes.audit_routes,
    administration_routes.key_routes,
    documentation.routes,
)

ALL: list[Route] = [route for resource in _RESOURCES for route in resource.all]
