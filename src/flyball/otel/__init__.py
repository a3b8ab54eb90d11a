"""OpenTelemetry spans and metrics of runs, by the GenAI semantic conventions.

    invoke_agent researcher                  the run; its parent is the caller's current span
    ├── chat gpt-5.5                         one attempt of one request
    ├── execute_tool search                  one call; parallel calls are parallel spans
    ├── execute_tool delegate
    │   └── invoke_agent reader              a child run, here or at another service
    └── chat gpt-5.5

Needs the extra `otel`, which has only OpenTelemetry's API. Without a configured SDK nothing is exported.
"""

from .propagation import continue_trace
from .sink import OtelSink

__all__ = ["OtelSink", "continue_trace"]
