"""`/metrics`: how the deployment and this process do, for Prometheus."""

from __future__ import annotations

from flask import Response, request

from boyd_api.routing import Media, Routes
from boyd_api.serving import Ask

routes = Routes("metrics", base="")

OPENMETRICS = "application/openmetrics-text"


@routes.get(
    "/metrics",
    scope="read",
    reach="deployment",
    answers={200: Media("text/plain", "Metrics as Prometheus reads them.", (OPENMETRICS,))},
)
def show(ask: Ask) -> Response:
    """Show the metrics of the deployment, and of the requests to this process."""
    body, content_type = ask.services.metrics.exposed(request.headers.get("Accept", ""))
    return Response(body, content_type=content_type)
