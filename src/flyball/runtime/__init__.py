"""The driver: does what the loop decides, on asyncio or trio."""

from .approval import Person
from .children import driver_of
from .driver import Driver
from .history import PausedRun
from .runner import Mailbox, Runner
from .tool_sources import SourcedDriver

__all__ = ["Driver", "Mailbox", "PausedRun", "Person", "Runner", "SourcedDriver", "driver_of"]
