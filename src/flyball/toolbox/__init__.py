"""Ready tools, opted in by name: look at files, write them, run Python code and shell commands, fetch pages."""

from .catalogue import NAMES, by_name
from .command import python, shell
from .fetcher import fetch
from .reader import files
from .writer import write

__all__ = ["NAMES", "by_name", "fetch", "files", "python", "shell", "write"]
