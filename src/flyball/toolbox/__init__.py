"""Ready tools, opted in by name: look at files, write them, run Python code and shell commands, fetch pages."""

from .catalogue import NAMES, by_name
from .commands import python, shell
from .fetch_tool import fetch
from .read_tools import files
from .write_tools import write

__all__ = ["NAMES", "by_name", "fetch", "files", "python", "shell", "write"]
