"""The driver: does what the loop decides, on asyncio or trio."""

from .approval import Person
from .children import driver_of
from .driver import Driver
from .mailbox import Mailbox
from .pause import Pause
from .runner import Runner
from .tool_sources import SourcedDriver

__all__ = ["Driver", "Mailbox", "Pause", "Person", "Runner", "SourcedDriver", "driver_of"]
