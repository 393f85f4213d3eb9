"""All routes, one module for each noun; a new module is added to `MODULES`."""

from __future__ import annotations

from boyd_api.routes import (
    actions,
    agents,
    approvals,
    audit,
    control,
    documents,
    events,
    health,
    intake,
    investigations,
    keys,
    loop,
    metrics,
    observations,
    observers,
    plugins,
    runs,
    situation,
    state,
    workers,
)
from boyd_api.routing import Route

#: In the job that the documentation shows.
MODULES = (
    health,
    state,
    loop,
    observations,
    situation,
    observers,
    actions,
    approvals,
    runs,
    investigations,
    intake,
    plugins,
    agents,
    control,
    workers,
    events,
    metrics,
    audit,
    keys,
    documents,
)

ALL: list[Route] = [route for module in MODULES for route in module.routes.all]
