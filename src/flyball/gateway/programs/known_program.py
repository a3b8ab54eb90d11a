"""Entry of the table of known programs: how to recognise one, point it at the gateway, and what then holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .launch import Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class SideRequest:
    """Marks of a request that a program makes beside its loop. All of them must be there."""

    name: str
    """What the request is for."""
    agents: tuple[str, ...]
    """Starts of the user agent. One of them must fit."""
    text: str = ""
    """Text in the instructions, or in the first or last message."""
    path: str = ""
    """Path of the API, if it alone is the mark."""
    header: tuple[str, str] | None = None
    """Header, and a text in its value."""
    max_output_tokens: int | None = None
    is_compaction: bool = False
    """Whether the reply replaces the history of its conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownProgram:
    """Fixed facts about a program. They were so in the tested version."""

    name: str
    """Name of its executable."""
    title: str
    version: str
    """Version it was tested with."""
    wires: tuple[str, ...]
    """APIs that it asks, for people."""
    example: str
    """Command line to paste, without `flyball exec --`."""
    enforced: str
    """What holds, for people."""
    pointed_by: str
    """What is done so that it asks the gateway, for people. Empty if it cannot be."""
    escapes: tuple[str, ...] = ()
    """What does not come through the gateway, for people."""
    elsewhere: tuple[str, ...] = ()
    """Options and commands of it with which another process, or its vendor, runs the loop. They are refused."""
    packages: tuple[str, ...] = ()
    """Names of its packages, as npx, uvx and folders of modules have them."""
    modules: tuple[str, ...] = ()
    """Modules that `python -m` runs."""
    other_names: tuple[str, ...] = ()
    """Other names of its executable."""
    prepare: Callable[[Launch], None] | None = None
    """Reads the program's own settings, before the gateway. Raises Ungoverned if it cannot be pointed at one."""
    point: Callable[[Launch], None] | None = None
    """Changes the command and the environment. None if the variables suffice."""
    side_requests: tuple[SideRequest, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names of its executable."""
        return (self.name, *self.other_names)
