"""What our tests use is what we ship: fakes that behave like the real thing, without the waiting."""

from .clock import ManualClock
from .driver import Script, replay
from .model import ScriptedModel
from .notebook import Notebook, until
from .script import Line, call, call_json, fail, say, together

__all__ = [
    "Line",
    "ManualClock",
    "Notebook",
    "Script",
    "ScriptedModel",
    "call",
    "call_json",
    "fail",
    "replay",
    "say",
    "together",
    "until",
]
