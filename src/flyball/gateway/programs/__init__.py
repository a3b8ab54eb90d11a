"""Known programs: one table with what each needs to ask the gateway, and what then holds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from .claude import CLAUDE_CODE
from .cline import CLINE
from .codex import CODEX
from .continue_dev import CONTINUE
from .copilot import AMP, COPILOT
from .gemini_cli import GEMINI_CLI, QWEN_CODE
from .known_program import KnownProgram, SideRequest
from .launch import Launch
from .litellm_programs import AIDER, LLM, MINI, OPEN_INTERPRETER
from .opencode import OPENCODE
from .pi import PI
from .recognition import identify

__all__ = ["KNOWN_PROGRAMS", "KnownProgram", "Launch", "SideRequest", "create_launch"]

KNOWN_PROGRAMS = (
    CLAUDE_CODE,
    CODEX,
    GEMINI_CLI,
    OPENCODE,
    COPILOT,
    QWEN_CODE,
    CONTINUE,
    PI,
    CLINE,
    MINI,
    LLM,
    OPEN_INTERPRETER,
    AIDER,
    AMP,
)


def create_launch(command: Sequence[str], environment: Mapping[str, str], named: Collection[str] = ()) -> Launch:
    """Return the launch of a command, with the known program that it runs."""
    program, start = identify(command, KNOWN_PROGRAMS)
    if program is None:
        return Launch(command, environment)
    return Launch(command, environment, program.title, program.version, start, named, program.prepare, program.point)
