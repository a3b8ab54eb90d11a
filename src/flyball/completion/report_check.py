"""Check of a report against the record of its run: which claims of done work no outcome supports.

The check reads English. It looks for sentences that say that something was done, and for a successful call that fits:
by its tool's name, its arguments or its result. It cannot judge style or plans, and does not look at them.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from .._internal.jsonable import to_json_text
from .._internal.text import to_one_line
from ..message import Message, MessageType, Role
from .report_words import (
    claims_work,
    find_content,
    find_groups,
    find_groups_of_call,
    find_numbers,
    find_stem,
    has_effect,
    is_past,
    split_name,
)

MAX_CLAIMS = 5
"""Maximum number of claims that are returned."""
_MAX_REPORT_CHARACTERS, _MAX_CALL_CHARACTERS, _MAX_CALLS = 20_000, 8_000, 2_000
"""Parts of a report, of a call, and number of newest calls that are looked at."""
_MAX_CLAUSE_CHARACTERS = 1_000
_MIN_OWN_TEXT = 60
"""Characters from which a text of the model counts as work, in a run without calls."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_CLAUSE_END = re.compile(r"[,;:()\u2013\u2014]|\s(?:and|but|so|then|while|because|which|that|where|after|although)\s")
_BULLET = re.compile(r"^[\s\-*•+#>]*(?:\d+[.)]\s+)?(?:\*\*)?")
_HARMLESS = re.compile(
    r"\b(?:no|without|zero)\s+(?:any\s+)?(?:errors?|failures?|problems?|issues?)\b"
    r"|\bas\s+(?:you\s+|was\s+|were\s+)?(?:requested|asked|instructed|planned|wanted)\b"
    r"|\b(?:that\s+|which\s+)?(?:you|the\s+user)(?:'ve|\s+have|\s+had)?\s+"
    r"(?:requested|wanted|asked(?:\s+me)?(?:\s+for|\s+to\s+do)?)\b"
    r"|(?<=the\s)requested\b|(?<=all\s)requested\b|(?<=your\s)requested\b",
    re.I,
)
"""Words that look as if something was not done, although they say nothing about that."""
_LIST_START = re.compile(
    r"(?:here(?:'s|\s+is)\s+)?what\s+(?:i|i've|i\s+have|we|we've|we\s+have|was|has\s+been)\s+"
    r"(?:did|done|accomplished|achieved|completed)(?:\s+so\s+far)?",
    re.I,
)
"""Words before a list of done work."""
_NOT_DONE = re.compile(
    r"\b(?:not|never|no|none|nothing|neither|nor|without|unable|cannot|fail\w*|unsuccess\w*|incomplete|unfinished"
    r"|denied|refused|refusal|rejected|declined|timed out|will|would|should|could|can|may|might|must|shall|needs?"
    r"|going to|plans?|planned|intend\w*|wants?|wanted|next|later|remain\w*|todo|to do|to be|if|once|when|before|until"
    r"|unless|let|please|try|tries|tried|trying|attempt\w*|ask\w*|request\w*|goal|aim|supposed|instead|almost|nearly"
    r"|partly|what|how|why|mistakes?|budget|limits?|maximum|iterations?|partially|unclear|unknown)\b|n't\b",
    re.I,
)
_OTHER_ACTOR = re.compile(r"^(?:you|the user|he|she|they|someone|users)\b", re.I)
_ADVERB = r"(?:now|also|already|just|then|finally|fully|all|successfully|only|first|recently|\w+ly)\s+"
_ACTIVE = re.compile(rf"\b(?:i|we)\b\s*(?:'ve|'d|\s?have|\s?had)?\s*(?:been able to\s+)?(?:{_ADVERB})*([a-z]+)\b", re.I)
_PASSIVE = re.compile(rf"(?<!\bi )(?<!\bwe )\b(?:was|were|been|is|are|got|being)\s+(?:{_ADVERB})*([a-z]+)\b", re.I)
_BARE = re.compile(rf"^(?:{_ADVERB})*([a-z]+)\b", re.I)
_WHOLE = (
    r"(?:the\s+|this\s+|your\s+|my\s+|our\s+|all\s+|every\s+|of\s+|whole\s+|entire\s+|assigned\s+|requested\s+|main\s+)*"
    r"(?:tasks?|work|job|goals?|requests?|project|assignment|mission|everything|steps|requirements)"
)
_COMPLETE = re.compile(
    rf"\b{_WHOLE}\b[^.]{{0,30}}?\b(?:is|are|was|were|been)\s+(?:{_ADVERB})*"
    r"(?:complete|completed|done|finished|accomplished|achieved|fulfilled|resolved|solved|handled|taken care of)\b"
    rf"|\b(?:completed|finished|accomplished|achieved|fulfilled)\s+{_WHOLE}\b"
    r"|\ball done\b|\bmission accomplished\b",
    re.I,
)
_TESTS_PASS = re.compile(
    r"\btests?\s+(?:all\s+|now\s+|have\s+|are\s+|is\s+|suite\s+)*(?:pass(?:ed|es|ing)?|succeed\w*|green)\b", re.I
)
_TESTS = frozenset({"test", "pytest", "unittest", "jest", "vitest", "ctest"})
_PASSED = frozenset({"pass", "ok", "green", "succe"})
_FAILED_TESTS = re.compile(r"\b[1-9]\d*\s+(?:failed|failures?|failing|errors?)\b")
_COUNT = re.compile(r"\b(?:times|calls)\b", re.I)
_MAX_SMALL_NUMBER = 12
_PUNCTUATION = " .,:;!-/"
_IDENTIFIER = re.compile(r"[`\"]([^`\"\n]{2,80})[`\"]|(\b[\w\-./]{0,80}\w[./_@]\w[\w\-./@]{0,80})")
_STRAIGHT = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"'})
"""Curly quotation marks, and the straight ones that stand for them."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim of done work that no outcome supports."""

    text: str
    """Sentence of the report."""
    reason: str

    def __str__(self) -> str:
        return f'"{self.text}" ({self.reason})'


@dataclass(frozen=True, slots=True)
class _Work:
    """Successful call, or a text that the model wrote, in the words that a claim about it may use."""

    name: frozenset[str]
    groups: frozenset[str]
    words: frozenset[str]
    text: str
    """Arguments and result, in lower case."""


class RecordedWork:
    """Done work of a conversation, which claims are compared with."""

    def __init__(self, messages: Iterable[Message], is_complete: bool = False) -> None:
        """Read the calls and results in the messages of a run, and of the earlier runs that they continue."""
        self.is_complete = is_complete
        messages = list(messages)
        calls = _pair_calls(messages)
        self._work = [call.describe() for call in calls[-_MAX_CALLS:] if call.is_done]
        if not calls:
            self._work = [_describe_text(text) for text in _find_own_texts(messages)]
        self._numbers = _collect_numbers(calls, self._work)

    def find_unsupported(self, report: str) -> tuple[Claim, ...]:
        """Return the claims of a report that no outcome supports."""
        claims: list[Claim] = []
        for sentence in _SENTENCE_END.split(report[:_MAX_REPORT_CHARACTERS]):
            reason = self._find_flaw(sentence.translate(_STRAIGHT))
            claim = Claim(to_one_line(_BULLET.sub("", sentence).strip(" *_"), 200), reason or "")
            if reason is not None and claim not in claims:
                claims.append(claim)
            if len(claims) == MAX_CLAIMS:
                break
        return tuple(claims)

    def _find_flaw(self, sentence: str) -> str | None:
        """Return why a sentence is not supported, or None."""
        if sentence.rstrip().endswith("?"):
            return None
        text, is_active = _HARMLESS.sub("", _BULLET.sub("", sentence)), True
        for clause in _CLAUSE_END.split(text):
            clause = clause[:_MAX_CLAUSE_CHARACTERS].strip()
            if _LIST_START.fullmatch(clause):
                is_active = True
                continue
            if not clause or _NOT_DONE.search(clause) or _OTHER_ACTOR.search(clause):
                is_active = False
                continue
            if _COMPLETE.search(clause) and not self.is_complete:
                return "the run was stopped before the task was complete"
            if _TESTS_PASS.search(clause):
                if not self._has_passed_tests(clause):
                    return "no outcome shows tests that pass"
                continue
            verbs = _find_verbs(clause, is_active)
            is_active = bool(verbs)
            for verb in filter(claims_work, verbs):
                reason = self._find_flaw_of_claim(verb, clause)
                if reason is not None:
                    return reason
        return None

    def _has_passed_tests(self, clause: str) -> bool:
        """Check whether an outcome shows tests that pass: all of them, or the number that the clause tells."""
        tests = [work for work in self._work if _TESTS & (work.words | work.name) and work.words & _PASSED]
        numbers = find_numbers(clause)
        return any(numbers & find_numbers(work.text) or not _FAILED_TESTS.search(work.text) for work in tests)

    def _find_flaw_of_claim(self, verb: str, clause: str) -> str | None:
        if not self._work:
            return "no call succeeded"
        if not any(_supports(work, verb, clause) for work in self._work):
            return "no successful call fits"
        numbers = find_numbers(clause)
        if not _COUNT.search(clause):  # a small number may count anything, such as the lines of a result
            numbers = {number for number in numbers if number > _MAX_SMALL_NUMBER}
        if numbers and self._numbers.isdisjoint(numbers):
            return "the record has no such number"
        return None


def _find_verbs(clause: str, may_be_bare: bool) -> list[str]:
    """Return the stems of the verbs in the past."""
    found = [match.group(1) for pattern in (_ACTIVE, _PASSIVE) for match in pattern.finditer(clause)]
    bare = _BARE.search(clause)
    if may_be_bare and bare is not None and bare.end() < len(clause):  # one word alone says nothing
        found.append(bare.group(1))
    return list({find_stem(word): None for word in found if is_past(word)})


def _supports(work: _Work, verb: str, clause: str) -> bool:
    identifiers = [first or second for first, second in _IDENTIFIER.findall(clause)]
    if identifiers and not any(name.strip(_PUNCTUATION).lower() in work.text for name in identifiers):
        return False
    if verb in work.name:
        return True
    groups = find_groups(frozenset({verb}))
    if has_effect(groups):
        if work.groups and not groups & work.groups:
            return False
    elif groups & work.groups or verb in work.words:
        return True
    content = find_content(clause) - {verb}
    return not content or bool(identifiers) or bool(content & (work.words | work.name))


@dataclass(frozen=True, slots=True)
class _RecordedCall:
    tool: str
    arguments: object
    result: str
    is_done: bool

    def describe(self) -> _Work:
        """Return the words of the call."""
        given = self.arguments if isinstance(self.arguments, str) else to_json_text(self.arguments)
        text = f"{self.tool} {given[:_MAX_CALL_CHARACTERS]} {self.result[:_MAX_CALL_CHARACTERS]}"
        name = split_name(self.tool)
        groups = find_groups_of_call(name, given[:_MAX_CALL_CHARACTERS])
        return _Work(name, groups, find_content(text), text.lower())


def _pair_calls(messages: Iterable[Message]) -> list[_RecordedCall]:
    """Return the calls that have a result."""
    arguments: dict[object, Any] = {}
    calls: list[_RecordedCall] = []
    for message in messages:
        payload = message.payload or {}
        if message.type is MessageType.TOOL_CALL:
            arguments[payload.get("call_id")] = payload.get("arguments")
        elif message.type is MessageType.TOOL_RESULT:
            given, is_done = arguments.get(payload.get("call_id")), not payload.get("is_error")
            calls.append(_RecordedCall(str(payload.get("name") or ""), given, message.content, is_done))
    return calls


def _find_own_texts(messages: Iterable[Message]) -> list[str]:
    texts = [message.content for message in messages if message.role is Role.ASSISTANT]
    return [text for text in texts if len(text) >= _MIN_OWN_TEXT]


def _describe_text(text: str) -> _Work:
    """Describe a text of the model, which is its only work in a run without calls."""
    shown = text[:_MAX_CALL_CHARACTERS]
    return _Work(frozenset({"writ"}), frozenset({"write", "compute"}), find_content(shown), shown.lower())


def _collect_numbers(calls: Sequence[_RecordedCall], work: Iterable[_Work]) -> frozenset[float]:
    """Return the numbers that the record has: those of calls and results, sums of arguments, and counts."""
    counts = Counter(call.tool for call in calls)
    done = Counter(call.tool for call in calls if call.is_done)
    numbers = {float(count) for count in (*counts.values(), *done.values(), len(calls), done.total())}
    sums: defaultdict[tuple[str, str], float] = defaultdict(float)
    for call in calls[-_MAX_CALLS:]:
        for name, value in _iter_numbers(call.arguments) if call.is_done else ():
            sums[call.tool, name] += value
    return frozenset({*numbers, *sums.values()}.union(*[find_numbers(one.text) for one in work]))


def _iter_numbers(arguments: object) -> Iterator[tuple[str, float]]:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return
    if isinstance(arguments, Mapping):
        given = cast("Mapping[Any, Any]", arguments)
        for name, value in given.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield str(name), float(min(value, 1e300))
