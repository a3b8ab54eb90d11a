"""Known programs: one table with what each needs to ask the gateway, and what then holds."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from .claude import CLAUDE_CODE
from .cline import CLINE
from .codex import CODEX
from .continue_dev import CONTINUE
from .copilot import AMP, COPILOT
from .gemini_cli import GEMINI_CLI, QWEN_CODE
from .launch import KnownProgram, Launch, SideRequest
from .litellm_programs import AIDER, LLM, MINI, OPEN_INTERPRETER
from .opencode import OPENCODE
from .pi import PI
from .recognition import find_hidden, identify
from .wrappers import get_name, open_wrappers

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
    changed = dict(environment)
    wrappers, inner = open_wrappers(command, changed)
    path = shutil.which(inner[0], path=changed.get("PATH"))  # a link may lead to a known program
    program, start = identify([path or inner[0], *inner[1:]], KNOWN_PROGRAMS)
    command = [*wrappers, *inner]
    if program is not None:
        return Launch(command, changed, program, len(wrappers) + start, named)
    hidden = find_hidden(inner, KNOWN_PROGRAMS)
    if hidden is not None and (hidden.point is not None or not hidden.pointed_by):  # variables do not suffice
        refuse = partial(_refuse_hidden, get_name(inner[0]))
        return Launch(command, changed, replace(hidden, prepare=refuse, point=None, elsewhere=()))
    return Launch(command, changed)


def _refuse_hidden(name: str, launch: Launch) -> None:
    raise launch.refuse(
        f"{name} would start it, so that its command cannot be changed",
        f"write flyball exec before the program itself, inside of {name}",
    )
