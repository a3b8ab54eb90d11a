"""The hooks and rules of one run, and what they have asked for."""

from __future__ import annotations

from collections.abc import Sequence

from .. import event
from ..progress import AskPerson, Fault, Hook, Notice, Point
from ..recorder import Recorder
from ..request import Request
from ..rules.engine import RuleEngine
from ..rules.orders import Notices


class Hooks:
    """Hooks and rules of one run, with the notices, questions and faults that came from them."""

    __slots__ = (
        "_recorder", "all", "due_points", "faults", "notices", "own", "questions", "refusals_reported", "rules", "sent",
    )  # fmt: skip

    def __init__(
        self,
        hooks: tuple[Hook, ...],
        rules: RuleEngine | None,
        recorder: Recorder,
        due_points: frozenset[Point] = frozenset(),
    ) -> None:
        self.own = hooks
        """Hooks of the agent."""
        self.rules = rules
        self.due_points = due_points
        """Points at which rules are evaluated in this turn."""
        self.all: tuple[Hook, ...] = hooks if rules is None else (*hooks, rules)
        """Hooks of the agent, and its rules."""
        self.notices = Notices()
        self.questions: Sequence[AskPerson] = ()
        """Questions of rules that no person was asked yet."""
        self.faults: Sequence[dict[str, str]] = ()
        """Failures of rules."""
        self.refusals_reported = 0
        """Number of refused budgets that hooks know of."""
        self._recorder = recorder
        self.sent: tuple[Notice, ...] = ()
        """Notices of the last request."""

    def attach_notices(self, request: Request, notices: tuple[Notice, ...]) -> None:
        """Send these notices with a request."""
        if notices:
            request.notices = tuple([notice.text for notice in notices])
        self.sent = notices

    def mark_delivered(self) -> None:
        """Record that the model has seen the notices of the last request."""
        for notice in self.sent:
            self._recorder.emit(event.NoticeDelivered, notice.by, notice.text, notice.category, notice.priority)
        self.notices.mark_delivered(self.sent)

    def repeat_notices(self) -> None:
        """Send the notices of the last request again: its reply was empty."""
        for notice in self.sent:
            self.notices.add(notice)

    def add_question(self, question: AskPerson) -> None:
        """Note a question that a person must be asked."""
        self.questions = [*self.questions, question]

    def take_questions(self) -> Sequence[AskPerson]:
        """Return the questions, and forget them."""
        questions, self.questions = self.questions, ()
        return questions

    def restore_questions(self, questions: Sequence[AskPerson]) -> None:
        """Put back questions that were taken."""
        self.questions = questions

    def add_fault(self, fault: Fault) -> None:
        """Record that a rule failed."""
        self.faults = [*self.faults, {"rule": fault.by, "trigger": fault.trigger, "reason": fault.reason}]
        self._recorder.emit(event.RuleFailed, fault.by, fault.trigger, fault.reason)
