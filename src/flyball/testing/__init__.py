"""What our tests use is what we ship: fakes that behave like the real thing, without the waiting."""

from .clock import ManualClock

__all__ = ["ManualClock"]
