"""Ready-made tools for files, Python code, shell commands and web pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from ..errors import UnknownTool
from ..tools import Tool, Toolset
from .commands import python, shell
from .fetch_tool import fetch
from .read_tools import files
from .write_tools import write

ToolFactory = Callable[[str, bool, Sequence[str]], list[Tool]]
"""Makes tools from the text after the colon, whether each call needs approval, and the variables that programs inherit.
"""

_FACTORIES: Mapping[str, ToolFactory] = MappingProxyType(
    {
        "files": lambda option, approve, pass_env: files(option or "."),
        "write": lambda option, approve, pass_env: write(option or "."),
        "python": lambda option, approve, pass_env: python(option or ".", approve=approve, pass_env=pass_env),
        "shell": lambda option, approve, pass_env: shell(option or ".", approve=approve, pass_env=pass_env),
        "fetch": lambda option, approve, pass_env: fetch(allow=[option] if option else ()),
    }
)
NAMES = tuple(_FACTORIES)
"""Names that `by_name` accepts."""


def by_name(names: str | Iterable[str], *, approve: bool = True, pass_env: Sequence[str] = ()) -> list[Tool]:
    """Return the tools with the given names.

    A name may have an option after a colon: a folder, or for `fetch` an address to allow. A text has commas between the
    names. `approve=False` lets Python code and shell commands run without approval. `pass_env` names further variables
    that they inherit.

    Raises:
        UnknownTool: there is no tool with this name.

    >>> by_name("files:/,fetch")
    [<Tool list_files(...)>, <Tool read_file(...)>, <Tool search_files(...)>, <Tool fetch(url, start)>]
    """
    wanted = names.split(",") if isinstance(names, str) else names
    tools: list[Tool] = []
    for item in wanted:
        name, _, option = item.strip().partition(":")
        if name not in _FACTORIES:
            raise UnknownTool(name, NAMES)
        tools += _FACTORIES[name](option, approve, pass_env)
    return list(Toolset(tools).values())


__all__ = ["NAMES", "by_name", "fetch", "files", "python", "shell", "write"]
