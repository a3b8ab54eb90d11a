"""Test helpers: models, a clock, a driver, a server, recordings and checks.

Flyball's own tests use them too. Names are imported on first use, because pytest always loads the plugin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..models.scripted import Line, ScriptedModel, call, call_json, fail, say, together
    from .assertions import Bounds, assert_honest, assert_stops
    from .clock import ManualClock
    from .fixtures import Notebook, RuleFolder, until
    from .recording import RecordedModel, playback, record
    from .reports import assert_report_honest, find_unsupported_claims
    from .script import ScriptDriver, replay
    from .server import LoopingProvider, ModelServer, sent, status
    from .store_checks import store_contract

__all__ = [
    "Bounds",
    "Line",
    "LoopingProvider",
    "ManualClock",
    "ModelServer",
    "Notebook",
    "RecordedModel",
    "RuleFolder",
    "ScriptDriver",
    "ScriptedModel",
    "assert_honest",
    "assert_report_honest",
    "assert_stops",
    "call",
    "call_json",
    "fail",
    "find_unsupported_claims",
    "playback",
    "record",
    "replay",
    "say",
    "sent",
    "status",
    "store_contract",
    "together",
    "until",
]

_NAMES_BY_MODULE = {
    ".clock": ("ManualClock",),
    ".store_checks": ("store_contract",),
    ".script": ("ScriptDriver", "replay"),
    ".assertions": ("assert_honest", "Bounds", "assert_stops"),
    "..models.scripted": ("ScriptedModel", "Line", "call", "call_json", "fail", "say", "together"),
    ".fixtures": ("Notebook", "until", "RuleFolder"),
    ".reports": ("assert_report_honest", "find_unsupported_claims"),
    ".recording": ("RecordedModel", "playback", "record"),
    ".server": ("LoopingProvider", "ModelServer", "sent", "status"),
}


if not TYPE_CHECKING:  # else a type checker accepts any name

    def __getattr__(name: str) -> object:
        from importlib import import_module

        for module, names in _NAMES_BY_MODULE.items():
            if name in names:
                return globals().setdefault(name, getattr(import_module(module, __name__), name))
        from .._deprecated import find_old_name

        return globals().setdefault(name, find_old_name(__name__, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
