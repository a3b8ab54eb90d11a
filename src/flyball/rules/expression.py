"""Conditions: Python-like expressions, compiled once, which cannot escape, change anything, or crash.

    values        1  0.7  'text'  true false none (or as in Python)  [1, 'a']; a tuple is a list
    fields        context.turn.number  context.state["any name"]: look-ups in a view, never attributes
    parts         x[0]  x[-1]  x[2:]  x['name']
    logic         and  or  not  a if b else c  == != < <= > >=  1 < x < 5  in  not in  is none  is not none
    arithmetic    + - * / // %: of numbers; + also joins two texts or two lists
    functions     abs all any bool float int len max min round sorted str sum, and the helpers of the vocabulary

There is nothing else. What is written is bounded (`source`), and so is all that is made of it (`operation`).

>>> from .view import View
>>> condition = Condition("context.turn.count / context.turn.most > 0.7", Vocabulary({"context"}))
>>> condition.evaluate(View({"context": {"turn": {"count": 8, "most": 10}}}))
ConditionResult(value=True, reason=None)
>>> condition.evaluate(View({"context": {"turn": {"count": 8}}})).reason
"context.turn has no field 'most' (in context.turn.most)"
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from types import TracebackType

from .._internal import validation
from ..errors import RuleError
from .compiler import CODE_FILENAME, Compiler, Source, Span
from .view import NoField, View
from .vocabulary import Vocabulary


class Expression:
    """An expression that was found right, ready to be worked out. It has no state, and any thread may use it."""

    __slots__ = ("_run", "source")

    def __init__(self, compiler: Compiler) -> None:
        self.source = compiler.source
        self._run = compiler.build_function()

    def compute(self, view: View) -> object:
        """What comes out, as a plain value; a RuleError where nothing does."""
        try:
            return self._run(view)
        except Exception as error:
            raise self._to_rule_error(error) from error

    def _to_rule_error(self, error: Exception) -> RuleError:
        reason = error.reason if isinstance(error, RuleError) else str(error) or type(error).__name__
        words = self.source.quote_span(_find_span(error.__traceback__))
        return RuleError(reason, " ".join(words.split()))


@dataclass(frozen=True, slots=True)
class ConditionResult:
    """What a condition came to; `reason` tells why it is false if it could not be worked out."""

    value: bool
    reason: str | None = None
    missing: bool = field(default=False, repr=False, compare=False)
    """Whether that is only because something it looks for is not there."""


_YES, _NO = ConditionResult(True), ConditionResult(False)


class Condition(Expression):
    """An expression that is true or false."""

    __slots__ = ()

    def __init__(self, text: str, vocabulary: Vocabulary, where: str = "condition") -> None:
        """`where` is what a mistake says of the place; all mistakes are raised together, as one `ConfigErrors`."""
        super().__init__(Compiler(Source(validation.check_text(where, text), where), vocabulary))

    def evaluate(self, view: View) -> ConditionResult:
        """Whether it is true of what a view shows. What cannot be worked out is false, with a reason."""
        try:
            return _YES if self._run(view) else _NO
        except Exception as error:
            return ConditionResult(False, str(self._to_rule_error(error)), isinstance(error, NoField | IndexError))


def _find_span(trace: TracebackType | None) -> Span:
    """Where in an expression an error arose: its code remembers from where in the text each step was made."""
    span: Span = (None, None, None, None)
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == CODE_FILENAME:
            [span] = islice(code.co_positions(), trace.tb_lasti // 2, trace.tb_lasti // 2 + 1)
        trace = trace.tb_next
    return span
