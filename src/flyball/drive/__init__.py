"""The driver: does what the loop decides, on asyncio or trio."""

from .driver import Driver
from .mailbox import Mailbox

__all__ = ["Driver", "Mailbox"]
