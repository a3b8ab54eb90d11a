"""Assertions as a completion policy: the run may end when its evidence holds."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..progress import Complete, Decision, GoOn, Policy, Progress, Unfinished
from .assertions import Assertions, CompletionOption, Findings, RequirementFinding

_REQUEST_CHARACTERS = 300


def nudge(findings: Findings, task: str, assertions: Assertions, offered: Collection[str] | None = None) -> str:
    """What a model is told that would end a run whose assertions do not hold yet; `task` is the request it was given.

    Where it is known which tools are `offered`, outcomes that need others are not spoken of.

    >>> from ..progress import Evidence
    >>> assertions = Assertions(required_tool_names=["commit"], required_engine_data_keys=["url"])
    >>> print(nudge(assertions.check(Evidence({"url": "https://…"})), "Fix the typo.", assertions))
    The task is not complete yet. 1 of 2 done.
    Still missing:
    - a successful call of commit
    The request was: Fix the typo.
    """
    if assertions.hide_mechanics:
        lines = ["The task is not complete yet. Go on with it."]
    else:
        lines = [f"The task is not complete yet.{_done(findings)}", *_missing(findings, assertions, offered)]
    request = _shortened(task)
    return "\n".join([*lines, f"The request was: {request}"] if request else lines)


def _done(findings: Findings) -> str:
    plain = [one.held for one in findings.details if not one.way]
    if not plain:
        return ""
    if any(one.way for one in findings.details):
        plain.append(bool(findings.ways))
    return f" {sum(plain)} of {len(plain)} done."


def _missing(findings: Findings, assertions: Assertions, offered: Collection[str] | None) -> Iterator[str]:
    known = {one.phrase for one in findings.details}
    yield from (f"{phrase[:1].upper()}{phrase[1:]}." for phrase in findings.missing if phrase not in known)
    plain = [_told(one, assertions) for one in findings.details if not one.held and not one.way]
    if plain:
        yield "Still missing:"
        yield from dict.fromkeys(f"- {words}" for words in plain)
    ways = () if findings.ways else assertions.open_ways
    if offered is not None:
        ways = tuple(way for way in ways if set(way.tool_names) <= set(offered))
    if ways:
        yield "One of these outcomes is needed:" if len(ways) > 1 else "This outcome is needed:"
        yield from (f"- {_lacking(way, findings, assertions)}" for way in ways)


def _lacking(way: CompletionOption, findings: Findings, assertions: Assertions) -> str:
    found = [one for one in findings.details if one.way == way.name]
    done = f"{way.name} ({sum(one.held for one in found)} of {len(found)} done)"
    if way.name in assertions.messages:
        return f"{done}: {assertions.messages[way.name].strip()}"
    return f"{done}, still missing: {'; '.join(dict.fromkeys(_told(one, assertions) for one in found if not one.held))}"


def _told(finding: RequirementFinding, assertions: Assertions) -> str:
    return assertions.messages.get(finding.about, finding.words).strip()


def _shortened(task: str) -> str:
    words = " ".join(task[: 10 * _REQUEST_CHARACTERS].split())
    if len(words) <= _REQUEST_CHARACTERS:
        return words if len(task) <= 10 * _REQUEST_CHARACTERS else f"{words} …"
    head = words[:_REQUEST_CHARACTERS]
    return f"{head.rpartition(' ')[0] or head} …"


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
