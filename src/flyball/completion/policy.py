"""Assertions as a completion policy: the run may end when its evidence holds."""

from __future__ import annotations

from collections.abc import Collection

from ..progress import Complete, Decision, GoOn, Policy, Progress, Unfinished
from .assertions import Assertions
from .nudge import nudge


class Asserted:
    """A completion policy made of assertions: a model's word is no evidence. Behind it another policy may be asked."""

    def __init__(
        self, assertions: Assertions, then: Policy | None = None, offered: Collection[str] | None = None
    ) -> None:
        self.assertions = assertions
        self._then = then
        self._offered = offered

    def __call__(self, progress: Progress, /) -> Decision:
        """Complete where all holds; else the model is told what is missing, unless nothing could help any more."""
        findings = self.assertions.check(progress.evidence)
        if findings.impossible:
            return Unfinished(findings.missing, findings.satisfied)
        if not findings.complete:
            message = nudge(findings, progress.task, self.assertions, self._offered)
            return GoOn(message, findings.missing, findings.satisfied)
        decision = Complete() if self._then is None else self._then(progress)
        return Complete(decision.output, findings.satisfied) if isinstance(decision, Complete) else decision
