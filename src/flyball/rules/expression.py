"""Conditions: Python-like expressions that are safe to load from anyone.

    values        1  0.7  'text'  true false none (or as in Python)  [1, 'a']; a tuple is a list
    fields        context.turn.number  context.state["any name"]: look-ups in a view, never attributes
    parts         x[0]  x[-1]  x[2:]  x['name']
    logic         and  or  not  a if b else c  == != < <= > >=  1 < x < 5  in  not in  is none  is not none
    arithmetic    + - * / // %: of numbers; + also joins two texts or two lists
    functions     abs all any bool float int len max min round sorted str sum, and the helpers of the vocabulary

Nothing else is allowed. An expression is compiled once. It cannot change anything, run code of its author or crash the
run: its length (see `compiler`) and the size of its values (see `operations`) are bounded.

>>> from .view import View
>>> condition = Condition("context.turn.count / context.turn.limit > 0.7", Vocabulary({"context"}))
>>> condition.evaluate(View({"context": {"turn": {"count": 8, "limit": 10}}}))
ConditionResult(value=True, reason=None)
>>> condition.evaluate(View({"context": {"turn": {"count": 8}}})).reason
"context.turn has no field 'limit' (in context.turn.limit)"
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
    """A compiled expression. Stateless, so any thread may use it."""

    __slots__ = ("_run", "source")

    def __init__(self, compiler: Compiler) -> None:
        self.source = compiler.source
        self._run = compiler.build_function()

    def compute(self, view: View) -> object:
        """Return the value of the expression. Raises RuleError if it has none."""
        try:
            return self._run(view)
        except Exception as error:
            raise self._to_rule_error(error) from error

    def _to_rule_error(self, error: Exception) -> RuleError:
        reason = error.reason if isinstance(error, RuleError) else str(error) or type(error).__name__
        excerpt = self.source.quote_span(_find_span(error.__traceback__))
        return RuleError(reason, " ".join(excerpt.split()))


@dataclass(frozen=True, slots=True)
class ConditionResult:
    """Value of a condition."""

    value: bool
    reason: str | None = None
    """Why the condition could not be evaluated and counts as false. None if it was evaluated."""
    missing: bool = field(default=False, repr=False, compare=False)
    """True if the only reason is a missing field or item."""


_TRUE, _FALSE = ConditionResult(True), ConditionResult(False)


class Condition(Expression):
    """A compiled expression that is true or false."""

    __slots__ = ()

    def __init__(self, text: str, vocabulary: Vocabulary, where: str = "condition") -> None:
        """Compile an expression. `where` names its place in errors.

        Raises ConfigErrors with everything that is wrong.
        """
        super().__init__(Compiler(Source(validation.check_text(where, text), where), vocabulary))

    def evaluate(self, view: View) -> ConditionResult:
        """Evaluate the condition.

        It is false, with a reason, if an error occurs.
        """
        try:
            return _TRUE if self._run(view) else _FALSE
        except Exception as error:
            return ConditionResult(False, str(self._to_rule_error(error)), isinstance(error, NoField | IndexError))


def _find_span(trace: TracebackType | None) -> Span:
    """Return the position in the expression at which an error was raised.

    The compiler copies the positions of the source into the code object, so the traceback has them.
    """
    span: Span = (None, None, None, None)
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == CODE_FILENAME:
            [span] = islice(code.co_positions(), trace.tb_lasti // 2, trace.tb_lasti // 2 + 1)
        trace = trace.tb_next
    return span
