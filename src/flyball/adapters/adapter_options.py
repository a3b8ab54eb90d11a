"""Options that all adapters have."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from .._internal import validation
from ..budget.limits import Limits
from ..budget.lock import create_lock
from ..errors import ConfigError, UsageError
from ..governor.govern_options import GovernOptions

if TYPE_CHECKING:
    from ..person import Approver
    from ..store import Store


_lock = create_lock()


@dataclass(kw_only=True, eq=False, repr=False)
class AdapterOptions(GovernOptions):
    """Options of a governed framework: those of `govern`, a store, and a person to ask.

    `within` None means the budgets of the run that is in progress here, if there is one. `model` and `price` are for
    models that the framework does not name, or whose price is not known.
    """

    store: Store | str | None = None
    """Store that gets a record of the run, or its address. None means that the run is not stored."""
    approver: Approver | None = None
    """Function that answers the Question of a rule for a person, sync or async. None means that the call is denied."""
    approver_seconds: float | None = 600.0
    """Seconds to wait for an answer; then it is no. None means no limit. The wait does not use the run's time."""
    is_used: bool = field(default=False, init=False)
    """Whether a run has the `run_id` of these options. Later runs get another one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.store is not None and not isinstance(self.store, str) and not hasattr(self.store, "keep"):
            raise ConfigError("adapter, store", self.store, "a store, or its address such as sqlite:///runs.db")
        if self.approver is not None and not callable(self.approver):
            raise ConfigError("adapter, approver", self.approver, "a function that takes a Question, sync or async")
        validation.parse_timeout("adapter, approver_seconds", self.approver_seconds)


def choose_options(limits: Limits | None, options: AdapterOptions | None) -> AdapterOptions:
    """Return the options of a run that got limits, options, or neither. A run id is only used once.

    Raises UsageError if it got both.
    """
    if limits is not None and options is not None:
        raise UsageError("pass limits= or options=AdapterOptions(limits, ...), not both")
    if options is None:
        return AdapterOptions(limits or Limits())
    with _lock:
        is_used, options.is_used = options.is_used, True
    if not is_used:
        return options
    default = next(one for one in fields(AdapterOptions) if one.name == "run_id").default_factory
    return replace(options, run_id=default())  # pyright: ignore[reportCallIssue]  # this field has one
