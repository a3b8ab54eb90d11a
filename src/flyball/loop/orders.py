"""Asking hooks and rules, and carrying out their orders on a run."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from .. import event
from ..budget.remedy import describe_refusal_remedy
from ..errors import describe_error
from ..progress import AskPerson, Emit, Fault, Halt, Point, ReplaceResult, Veto
from ..rules.orders import Notices, apply_order
from .effects import Extend
from .state import RunState


def call_hooks(run: RunState, point: Point, about: object = None) -> Veto | None:
    """Ask the hooks, carry out their orders, and return the first veto.

    A hook that raises ends the run, but not in the middle of a turn: every pair must close. If it could have vetoed a
    call, it did.
    """
    hooks, veto = run.hooks, None
    for hook in hooks.all if point in hooks.due_points else hooks.own:
        try:
            orders = hook(point, run.progress, about)
            if not orders:
                continue
            for order in orders:
                if type(order) is Veto:
                    veto = veto or order
                else:
                    apply_order(order, RunTarget(run), point)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            if point is Point.TOOL_CALLED:
                veto = veto or Veto(f"a hook failed ({type(error).__name__}), so the call is not made")
            else:
                run.signals.fail(describe_error(error))
    return veto


def emit_refusals(run: RunState) -> None:
    """Record the first refusal of each budget, and ask the hooks about it."""
    budget, hooks = run.budget, run.hooks
    if hooks.refusals_reported == budget.refusal_count:
        return
    refusals = budget.refusals
    while hooks.refusals_reported < len(refusals):
        refusal = refusals[hooks.refusals_reported]
        hooks.refusals_reported += 1
        remedy = describe_refusal_remedy(refusal, budget)
        run.recorder.emit(event.BudgetRefused, refusal.budget, refusal.flag, remedy, refusal.is_shared)
        call_hooks(run, Point.BUDGET_REFUSED, refusal.budget)


def emit_count_changes(run: RunState) -> None:
    """Record the counts that hooks or the caller have set."""
    for key, change in run.budget.take_count_changes():
        run.recorder.emit(event.CountSet, key, change.difference, change.used)


class RunTarget:
    """A run of an agent, as orders see it."""

    __slots__ = ("_run",)

    def __init__(self, run: RunState) -> None:
        self._run = run

    @property
    def notices(self) -> Notices:
        return self._run.hooks.notices

    @property
    def state(self) -> MutableMapping[str, Any]:
        return self._run.state

    def veto(self, order: Veto) -> None:
        """Do nothing: `call_hooks` returns vetoes to the code that asked."""

    def halt(self, order: Halt, point: Point | None) -> None:
        self._run.signals.request_halt(order)

    def extend(self, budget: str, amount: float, by: str) -> None:
        seconds = float(amount) if budget == "seconds" else 0.0
        self._run.extend(Extend({} if seconds else {budget: int(amount)}, seconds, by))

    def ask_person(self, order: AskPerson, point: Point | None) -> None:
        self._run.hooks.add_question(order)

    def use_model(self, name: str, by: str) -> None:
        """Switch to a model if it is ready; otherwise record a fault and keep the present one."""
        run = self._run
        if name == run.model.name:
            return
        try:
            reason = run.spec.model.others[name].ready()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
        if reason is None:
            run.model.switch(name)
            run.estimate_for_model()
        else:
            run.hooks.add_fault(Fault(by, "use_model", f"the model {name} is not ready: {reason}"))

    def emit(self, order: Emit) -> None:
        self._run.recorder.emit(event.RuleEmitted, order.by, order.name, order.data)

    def record_fault(self, order: Fault) -> None:
        self._run.hooks.add_fault(order)

    def replace_result(self, order: ReplaceResult, point: Point | None) -> None:
        run = self._run
        if point is not Point.TOOL_ENDED or not isinstance(order.text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            run.hooks.add_fault(Fault(order.by, "replace_result", "it needs a text, and works at tool_ended only"))
            return
        call_id, tool = run.messages.replace_last_result(order.text)
        run.recorder.emit(event.ResultReplaced, call_id, tool, order.by)
