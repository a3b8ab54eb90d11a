"""Assertions as a completion policy: the run may end when its evidence holds."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..progress import Complete, Decision, GoOn, Policy, Progress, Unfinished
from .assertions import Assertions, CompletionOption, Findings, RequirementFinding

_REQUEST_CHARACTERS = 300


def build_nudge(
    findings: Findings, task: str, assertions: Assertions, available_tools: Collection[str] | None = None
) -> str:
    """What a model is told that would end a run whose assertions do not hold yet; `task` is the request it was given.

    Where it is known which tools are `offered`, outcomes that need others are not spoken of.

    >>> from ..progress import Evidence
    >>> assertions = Assertions(required_tool_names=["commit"], required_engine_data_keys=["url"])
    >>> print(build_nudge(assertions.check(Evidence({"url": "https://…"})), "Fix the typo.", assertions))
    The task is not complete yet. 1 of 2 done.
    Still missing:
    - a successful call of commit
    The request was: Fix the typo.
    """
    if assertions.hide_mechanics:
        lines = ["The task is not complete yet. Go on with it."]
    else:
        lines = [
            f"The task is not complete yet.{_format_progress(findings)}",
            *_format_missing(findings, assertions, available_tools),
        ]
    request = _shorten(task)
    return "\n".join([*lines, f"The request was: {request}"] if request else lines)


def _format_progress(findings: Findings) -> str:
    plain = [one.is_met for one in findings.details if not one.option]
    if not plain:
        return ""
    if any(one.option for one in findings.details):
        plain.append(bool(findings.met_options))
    return f" {sum(plain)} of {len(plain)} done."


def _format_missing(
    findings: Findings, assertions: Assertions, available_tools: Collection[str] | None
) -> Iterator[str]:
    known = {one.phrase for one in findings.details}
    yield from (f"{phrase[:1].upper()}{phrase[1:]}." for phrase in findings.missing if phrase not in known)
    plain = [_format_finding(one, assertions) for one in findings.details if not one.is_met and not one.option]
    if plain:
        yield "Still missing:"
        yield from dict.fromkeys(f"- {words}" for words in plain)
    ways = () if findings.met_options else assertions.open_ways
    if available_tools is not None:
        ways = tuple(way for way in ways if set(way.tool_names) <= set(available_tools))
    if ways:
        yield "One of these outcomes is needed:" if len(ways) > 1 else "This outcome is needed:"
        yield from (f"- {_format_option(way, findings, assertions)}" for way in ways)


def _format_option(option: CompletionOption, findings: Findings, assertions: Assertions) -> str:
    found = [one for one in findings.details if one.option == option.name]
    done = f"{option.name} ({sum(one.is_met for one in found)} of {len(found)} done)"
    if option.name in assertions.messages:
        return f"{done}: {assertions.messages[option.name].strip()}"
    missing = dict.fromkeys(_format_finding(one, assertions) for one in found if not one.is_met)
    return f"{done}, still missing: {'; '.join(missing)}"


def _format_finding(finding: RequirementFinding, assertions: Assertions) -> str:
    return assertions.messages.get(finding.subject, finding.model_text).strip()


def _shorten(task: str) -> str:
    words = " ".join(task[: 10 * _REQUEST_CHARACTERS].split())
    if len(words) <= _REQUEST_CHARACTERS:
        return words if len(task) <= 10 * _REQUEST_CHARACTERS else f"{words} …"
    head = words[:_REQUEST_CHARACTERS]
    return f"{head.rpartition(' ')[0] or head} …"


class AssertionPolicy:
    """A completion policy made of assertions: a model's word is no evidence. Behind it another policy may be asked."""

    def __init__(
        self, assertions: Assertions, next_policy: Policy | None = None, available_tools: Collection[str] | None = None
    ) -> None:
        self.assertions = assertions
        self._next_policy = next_policy
        self._available_tools = available_tools

    def __call__(self, progress: Progress, /) -> Decision:
        """Complete where all holds; else the model is told what is missing, unless nothing could help any more."""
        findings = self.assertions.check(progress.evidence)
        if findings.impossible:
            return Unfinished(findings.missing, findings.satisfied)
        if not findings.complete:
            message = build_nudge(findings, progress.task, self.assertions, self._available_tools)
            return GoOn(message, findings.missing, findings.satisfied)
        decision = Complete() if self._next_policy is None else self._next_policy(progress)
        return Complete(decision.output, findings.satisfied) if isinstance(decision, Complete) else decision
