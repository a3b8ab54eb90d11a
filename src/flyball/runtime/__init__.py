"""The driver: does what the loop decides, on asyncio or trio."""

from .approval import Person
from .children import build_driver
from .driver import Driver
from .history import PausedRun
from .runner import Runner, SignalQueue
from .tool_sources import SourcedDriver

__all__ = ["Driver", "PausedRun", "Person", "Runner", "SignalQueue", "SourcedDriver", "build_driver"]
