"""Changing to a fallback model after a request has failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..event import FellBack
from ..request import FailureKind, ModelFailure
from .orders import emit_refusals
from .state import RunState

_PASSING = (FailureKind.RETRYABLE, FailureKind.FINAL)


def find_fallback(run: RunState, failure: ModelFailure) -> tuple[str, bool] | None:
    """Return the model to ask after this failure, and True if the list of models starts again.

    None if no other model helps: the agent has none, all have failed for good, or the conversation is too long.
    """
    if not run.spec.model.fallbacks or failure.kind not in _PASSING:
        return None
    return run.model.find_fallback(is_final=failure.kind is FailureKind.FINAL)


def change_model(run: RunState, name: str, error: Mapping[str, Any], wait_s: float = 0.0) -> None:
    """Ask another model from now on, and record why."""
    failed = run.model.facts.name
    run.model.fall_back(name, error)
    run.recorder.emit(FellBack, failed, run.model.facts.name, error["code"], error["message"], wait_s)
    run.estimate_for_model()


def change_for_report(run: RunState, failure: ModelFailure) -> bool:
    """Change to the next model of the list, if there is one. A report is not waited for."""
    if run.signals.is_cancelled or run.signals.failure is not None:
        return False
    fallback = find_fallback(run, failure)
    if fallback is None or fallback[1]:
        return False
    if not run.budget.claim(retries=1):
        emit_refusals(run)
        return False
    change_model(run, fallback[0], failure.described)
    return True


def change_to_ready(run: RunState, reason: str) -> bool:
    """Change to the first model that can be asked, before the first request. `reason` says why the present one cannot.

    Models that are not ready are not asked later either.
    """
    names = [name for name in run.model.candidates if name != run.model.name]
    for place, name in enumerate(names):
        if run.spec.model.find(name).ready() is None:
            change_model(run, name, {"code": "model_not_ready", "message": reason})
            run.model.candidates = tuple(names[place:])
            return True
    return False
