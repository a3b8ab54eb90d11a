"""The driver: does what the loop decides, on asyncio or trio."""

from .deciding import Person
from .driver import Driver
from .family import driver_of
from .mailbox import Mailbox
from .pause import Pause
from .runner import Runner
from .sourced import SourcedDriver

__all__ = ["Driver", "Mailbox", "Pause", "Person", "Runner", "SourcedDriver", "driver_of"]
