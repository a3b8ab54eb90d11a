"""Plan of a subscription: money is imputed, and the provider's headers tell how much of the plan is used."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from .inbound import Inbound

_FRACTION = re.compile(r"anthropic-ratelimit-unified-(5h|7d)-utilization")
_PERCENT = re.compile(r"x-codex-(primary|secondary)-used-percent")
_OTHER = re.compile(r"anthropic-ratelimit-unified-\w+-utilization|x-codex-\w+-used-percent")
_NAMES = {"5h": "5 hours", "7d": "7 days"}
_MAX_SHARE = 10.0
"""Largest share that is believed. Providers report a little more than the whole where a limit was exceeded."""


@dataclass(slots=True)
class PlanWindow:
    """Window of a plan, such as five hours, with an amount of its own. Shares are parts of the whole plan."""

    first: float
    """Share that was used when the run began, or when a new window began."""
    last: float
    earlier: float = 0.0
    """Share that the run used in windows before this one."""

    @property
    def used(self) -> float:
        """Share used since the run began, by whatever uses the same plan."""
        return self.earlier + max(0.0, self.last - self.first)

    def note(self, share: float) -> None:
        """Record a reported share. A lower one means that a new window began."""
        if share < self.last:
            self.earlier, self.first = self.used, 0.0
        self.last = share


class Subscription:
    """Use of a subscription during a run."""

    def __init__(self, max_share: float | None, *, is_used: bool) -> None:
        """Limit the share of the plan that may be used from now on, from 0 to 1. None means no limit."""
        self.max_share = max_share
        self.is_used = is_used
        """Whether the program is logged in to a subscription, so that dollars are imputed."""
        self.windows: dict[str, PlanWindow] = {}
        self._not_read: dict[str, str] = {}
        """Headers that are not understood, with their first value."""

    def note_request(self, inbound: Inbound) -> None:
        """Recognise the login of a request."""
        key = inbound.headers.get("authorization", "").removeprefix("Bearer ")
        if key.startswith("sk-ant-oat") or "chatgpt-account-id" in inbound.headers:
            self.is_used = True

    def note_reply(self, headers: Mapping[str, str]) -> None:
        """Read what the provider's headers tell about the plan."""
        for name, value in headers.items():
            fraction, percent = _FRACTION.fullmatch(name), _PERCENT.fullmatch(name)
            if fraction is None and percent is None:
                if _OTHER.fullmatch(name):
                    self._not_read.setdefault(name, value)
                continue
            share = _read_share(value, 1 if fraction else 100)
            if share is None:
                self._not_read.setdefault(name, value)
                continue
            window = _NAMES[fraction[1]] if fraction else _name_window(headers, percent[1] if percent else "")
            if window in self.windows:
                self.windows[window].note(share)
            else:
                self.windows[window] = PlanWindow(share, share)

    @property
    def used_up(self) -> str | None:
        """Sentence that the share is used up; None if it is not."""
        for name, window in self.windows.items():
            if self.max_share is not None and window.used >= self.max_share:
                return f"{_show(window.used)} of the plan for {name} was used (--plan-share {_show(self.max_share)})."
        return None

    def list_remarks(self) -> list[str]:
        """Return sentences for the user about what holds."""
        if self.max_share is None and not self.is_used:
            return []
        remarks = [f"{_show(window.used)} of the plan for {name} was used" for name, window in self.windows.items()]
        if self.max_share is not None and not self.windows:
            remarks.append("the provider reported no use of a plan, so --plan-share limited nothing")
        remarks += [
            f"the header {name} is not known ({value[:40]!r}), so it limited nothing"
            for name, value in self._not_read.items()
        ]
        return remarks

    def describe(self) -> dict[str, object]:
        """Return the facts for the record. {} if no subscription is used."""
        if not self.is_used:
            return {}
        windows = {
            name: {"first": each.first, "last": each.last, "used": each.used} for name, each in self.windows.items()
        }
        return {"plan": {"is_cost_imputed": True, "max_share": self.max_share, "windows": windows}}


def _read_share(value: str, whole: int) -> float | None:
    try:
        share = float(value) / whole
    except ValueError:
        return None
    return share if math.isfinite(share) and 0 <= share <= _MAX_SHARE else None


def _name_window(headers: Mapping[str, str], name: str) -> str:
    """Return the length of a window of Codex, or its name if that is not told."""
    minutes = headers.get(f"x-codex-{name}-window-minutes", "")
    if not minutes.isdecimal() or not int(minutes):
        return f"its {name} window"
    hours = int(minutes) / 60
    return f"{hours / 24:g} days" if hours % 24 == 0 else f"{hours:g} hours"


def _show(share: float) -> str:
    return f"{100 * share:.3g} %"
