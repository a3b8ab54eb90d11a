"""Name under which the package is installed; it is imported as `flyball`."""

from __future__ import annotations

DISTRIBUTION = "flyball-ai"


def format_install(extra: str) -> str:
    """Return the command that installs an extra.

    >>> format_install("otel")
    "pip install 'flyball-ai[otel]'"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'"
