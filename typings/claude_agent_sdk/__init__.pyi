"""Types that the adapter needs of a package that is not installed here: it brings a program of 350 MB."""

from dataclasses import dataclass, field
from pathlib import Path

@dataclass
class ClaudeAgentOptions:
    """Options of a query; most are left out here."""

    model: str | None = None
    settings: str | None = None
    cwd: str | Path | None = None
    env: dict[str, str] = field(default_factory=dict[str, str])
