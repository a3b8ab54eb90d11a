"""What our tests use is what we ship: fakes that behave like the real thing, without the waiting."""

from .clock import ManualClock
from .notebook import Notebook, until

__all__ = ["ManualClock", "Notebook", "until"]
