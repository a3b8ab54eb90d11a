"""Completion policy that lets a run end when its evidence meets the assertions."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..progress import Complete, Continue, Decision, Policy, Progress, Unfinished
from .assertions import Assertions, CompletionOption, Findings, RequirementFinding

_REQUEST_CHARACTERS = 300
"""Maximum length of the request quoted in a nudge."""


class AssertionPolicy:
    """Completion policy based on assertions; the model's word is not evidence.

    Once the assertions hold, `next_policy` decides, if there is one.
    """

    def __init__(
        self, assertions: Assertions, next_policy: Policy | None = None, available_tools: Collection[str] | None = None
    ) -> None:
        self.assertions = assertions
        self._next_policy = next_policy
        self._available_tools = available_tools

    def __call__(self, progress: Progress, /) -> Decision:
        """Decide whether the run may end.

        If something is missing, the model gets a nudge, unless the run can no longer complete.
        """
        findings = self.assertions.check(progress.evidence)
        if findings.impossible:
            return Unfinished(findings.missing, findings.satisfied)
        if not findings.complete:
            message = build_nudge(findings, progress.task, self.assertions, self._available_tools)
            return Continue(message, findings.missing, findings.satisfied)
        decision = Complete() if self._next_policy is None else self._next_policy(progress)
        if not isinstance(decision, Complete):
            return decision
        return Complete(decision.output, findings.satisfied, decision.text)

    @property
    def asks_next_policy(self) -> bool:
        """True if another policy decides once the assertions hold."""
        return self._next_policy is not None


def build_nudge(
    findings: Findings, task: str, assertions: Assertions, available_tools: Collection[str] | None = None
) -> str:
    """Build the message for a model that stops before its assertions hold.

    `task` is the original request. With `available_tools`, the message leaves out outcomes that need other tools; None
    means that the tools are unknown.

    >>> from ..progress import Evidence
    >>> assertions = Assertions(required_tool_names=["commit"], required_engine_data_keys=["url"])
    >>> print(build_nudge(assertions.check(Evidence({"url": "https://…"})), "Fix the typo.", assertions))
    The task is not complete yet. 1 of 2 done.
    Still missing:
    - a successful call of commit
    The request was: Fix the typo.
    """
    if assertions.hide_mechanics:
        lines = ["The task is not complete yet. Continue with it."]
    else:
        lines = [
            f"The task is not complete yet.{_format_progress(findings)}",
            *_format_missing(findings, assertions, available_tools),
        ]
    request = _shorten(task)
    return "\n".join([*lines, f"The request was: {request}"] if request else lines)


def _format_progress(findings: Findings) -> str:
    met = [finding.is_met for finding in findings.details if not finding.option]
    if not met:
        return ""
    if any(finding.option for finding in findings.details):
        met.append(bool(findings.met_options))
    return f" {sum(met)} of {len(met)} done."


def _format_missing(
    findings: Findings, assertions: Assertions, available_tools: Collection[str] | None
) -> Iterator[str]:
    known = {finding.phrase for finding in findings.details}
    yield from (f"{phrase[:1].upper()}{phrase[1:]}." for phrase in findings.missing if phrase not in known)
    missing = [
        _format_finding(finding, assertions)
        for finding in findings.details
        if not finding.is_met and not finding.option
    ]
    if missing:
        yield "Still missing:"
        yield from dict.fromkeys(f"- {text}" for text in missing)
    options = () if findings.met_options else assertions.open_ways
    if available_tools is not None:
        options = tuple(option for option in options if set(option.tool_names) <= set(available_tools))
    if options:
        yield "One of these outcomes is needed:" if len(options) > 1 else "This outcome is needed:"
        yield from (f"- {_format_option(option, findings, assertions)}" for option in options)


def _format_option(option: CompletionOption, findings: Findings, assertions: Assertions) -> str:
    option_findings = [finding for finding in findings.details if finding.option == option.name]
    progress = f"{option.name} ({sum(finding.is_met for finding in option_findings)} of {len(option_findings)} done)"
    if option.name in assertions.messages:
        return f"{progress}: {assertions.messages[option.name].strip()}"
    missing = dict.fromkeys(_format_finding(finding, assertions) for finding in option_findings if not finding.is_met)
    return f"{progress}, still missing: {'; '.join(missing)}"


def _format_finding(finding: RequirementFinding, assertions: Assertions) -> str:
    return assertions.messages.get(finding.subject, finding.model_text).strip()


def _shorten(task: str) -> str:
    words = " ".join(task[: 10 * _REQUEST_CHARACTERS].split())
    if len(words) <= _REQUEST_CHARACTERS:
        return words if len(task) <= 10 * _REQUEST_CHARACTERS else f"{words} …"
    head = words[:_REQUEST_CHARACTERS]
    return f"{head.rpartition(' ')[0] or head} …"
