"""The runtime: performs what the loop decides, on asyncio or trio."""

from .approval import Person
from .children import build_driver
from .driver import RunDriver
from .history import PausedRun
from .runner import Runner, SignalQueue

__all__ = ["PausedRun", "Person", "RunDriver", "Runner", "SignalQueue", "build_driver"]
