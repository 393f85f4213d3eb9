"""Settings of traces."""

from __future__ import annotations

import os
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
)

#: Variables of OpenTelemetry that name a collector as well.
_NAMED = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def _address(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError("must be an address such as http://collector:4318")
    return text


def _template(text: str) -> str:
    if "{trace_id}" not in text:
        raise ValueError("must hold {trace_id}")
    return _address(text)


class TracesSettings(BaseModel):
    """Export of traces to OpenTelemetry.

    Attributes:
        endpoint: the collector's base URL for OTLP over HTTP; absent: that of
            `OTEL_EXPORTER_OTLP_ENDPOINT`, or no export.
        deployment: the name of this deployment; all ids of spans are derived from it.
        ratio: the part of the traces to export, chosen by their ids.
        link: the address of a trace, with `{trace_id}`; flight records link to it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    endpoint: Annotated[str, AfterValidator(_address)] | None = None
    deployment: str = Field(default="boyd", min_length=1, max_length=100)
    ratio: float = Field(default=1.0, ge=0, le=1)
    link: Annotated[str, AfterValidator(_template)] | None = None

    @property
    def is_exporting(self) -> bool:
        """True if there is a collector to export to."""
        return self.endpoint is not None or any(os.environ.get(name) for name in _NAMED)
