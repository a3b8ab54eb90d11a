"""Trace context in the headers of HTTP requests (W3C `traceparent`)."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.context import Context


@contextmanager
def continue_trace(headers: Mapping[str, str]) -> Generator[None]:
    """Make the caller's span, named by the headers of its request, the parent of spans within this block.

    Does nothing if OpenTelemetry is not in use, or if there is a current span already, as an instrumented server has.
    Header names are lower case.
    """
    if "traceparent" not in headers or "opentelemetry.trace" not in sys.modules:
        yield
        return
    from opentelemetry import context, trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    if trace.get_current_span().get_span_context().is_valid:
        yield
        return
    token = context.attach(TraceContextTextMapPropagator().extract(headers))
    try:
        yield
    finally:
        context.detach(token)


def build_trace_headers(context: Context) -> dict[str, str]:
    """Return the headers with which a service continues the trace."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers, context)
    return headers
