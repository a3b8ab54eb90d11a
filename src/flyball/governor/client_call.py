"""Call of a model client within the time of its turn: its retries, its deadline and its usage.

Clients and replies are recognised by their shape, so that no SDK is imported.
"""

from __future__ import annotations

import inspect
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from .._internal.timeouts import TimeIsOver, await_within, call_within, sleep
from ..budget.usage import Usage
from ..errors import ConfigError, UsageError
from ..models.failures import is_retryable_status, is_unreachable, parse_retry_after

if TYPE_CHECKING:
    from .turn import Turn  # cycle: its type only; a turn makes the calls

_FIRST_BACKOFF_S, _MAX_BACKOFF_S = 0.5, 60.0
_TIMEOUT_MARGIN_S = 1.0
"""Seconds that the client's own timeout comes after the end of the turn."""
_USAGE_FIELDS = ("usage", "usage_metadata", "usageMetadata")
"""Fields of replies with their usage; the last two are Gemini's."""
_TEMPORARY = frozenset({"APIConnectionError", "APITimeoutError", "TransportError", "ConnectionError", "TimeoutError"})
"""Names of exceptions of clients, and of Python, for requests that may succeed later."""


class ClientCall:
    """One call of a client, with the retries that the budget `retries` pays for."""

    def __init__(
        self,
        turn: Turn,
        function: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._turn = turn
        self._function = function
        self._args, self._kwargs = args, kwargs
        self._attempts = 0
        self._is_late = False
        """True if the next attempt would begin after the end of the time."""
        self._max_output_tokens: int | None = None

    def run(self) -> Any:
        """Call a blocking client; return None if it has no time or no room for a reply."""
        with self._turn.calling():
            return self._run()

    async def arun(self) -> Any:
        """Call an async client; return None if it has no time or no room for a reply."""
        with self._turn.calling():
            return await self._arun()

    def _run(self) -> Any:
        while (seconds := self._start_attempt()) > 0:
            try:
                reply = call_within(seconds, self._bind(seconds))
            except TimeIsOver:
                return self._turn.charge_request()
            except Exception as error:
                pause_s = self._plan_retry(error)
                if pause_s is None:
                    raise
                time.sleep(pause_s)
                continue
            if inspect.isawaitable(reply):
                cast("Any", reply).close()
                raise UsageError("turn.call() got an async function: use `await turn.acall(...)`")
            return self._finish(reply)
        return None

    async def _arun(self) -> Any:
        while (seconds := self._start_attempt()) > 0:
            try:
                reply = await await_within(seconds, partial(_await_reply, self._bind(seconds)))
            except TimeIsOver:
                return self._turn.charge_request()
            except Exception as error:
                pause_s = self._plan_retry(error)
                if pause_s is None:
                    raise
                await sleep(pause_s)
                continue
            return self._finish(reply)
        return None

    def _start_attempt(self) -> float:
        """Reserve the request, and return the seconds that it may take. 0 if it has no time, or no room for a reply."""
        self._attempts += 1
        seconds = 0.0 if self._is_late else self._turn.remaining_s()
        if seconds > 0:
            self._max_output_tokens = self._turn.max_output_tokens
        return 0.0 if self._max_output_tokens == 0 else seconds

    def _bind(self, seconds: float) -> Callable[[], Any]:
        return partial(without_retries(self._function, seconds + _TIMEOUT_MARGIN_S), *self._args, **self._kwargs)

    def _plan_retry(self, error: Exception) -> float | None:
        """Return the seconds to wait before the next attempt. None means that the error is raised.

        An error after the end of the time counts as the end of the time. So does one after which the run would have to
        wait for longer than that.
        """
        turn = self._turn
        self._settle_failure(error)
        remaining_s = turn.remaining_s()
        self._is_late = remaining_s <= 0
        if self._is_late:
            return 0.0
        if not is_temporary(error) or not turn.claim_retry():
            return None
        pause_s = _compute_pause_s(error, self._attempts)
        self._is_late = pause_s >= remaining_s
        if self._is_late:
            turn.run_out_of_time(error)
            return 0.0
        if not self._is_reserved_again():
            return None
        turn.tell_retry(self._attempts, pause_s, str(error))
        return pause_s

    def _settle_failure(self, error: Exception) -> None:
        if is_unbilled(error):
            self._turn.release_request()
        else:
            self._turn.charge_request()

    def _is_reserved_again(self) -> bool:
        """Reserve the next attempt; return False if its reply would have to be shorter than the caller asked for."""
        before, now = self._max_output_tokens, self._turn.max_output_tokens
        if now is None or (before is not None and now >= before):
            return True
        self._turn.drop_reservation()
        return False

    def _finish(self, reply: Any) -> Any:
        usage = find_usage(reply)
        if usage is not None:
            self._turn.settle(usage, service_tier=find_service_tier(reply))
        elif (find_status(reply) or 0) >= 400:
            self._turn.release_request()
        else:
            self._turn.expect_settling()
        return reply


async def _await_reply(function: Callable[[], Any]) -> Any:
    reply = function()
    if not inspect.isawaitable(reply):
        raise UsageError("turn.acall() got a function that is not async: use `turn.call(...)`, or an async client")
    return await reply


def without_retries(function: Callable[..., Any], timeout_s: float) -> Callable[..., Any]:
    """Return the method of a copy of its client that makes no retries of its own and gives up after `timeout_s`.

    Works for methods such as `client.chat.completions.create`. Any other function is returned unchanged.
    """
    if isinstance(function, partial):
        changed = cast("partial[Any]", function)
        return partial(without_retries(changed.func, timeout_s), *changed.args, **changed.keywords)
    resource = getattr(function, "__self__", None)
    client = getattr(resource, "_client", None)
    copy = getattr(client, "with_options", None)
    if resource is None or not callable(copy):
        return function
    with suppress(Exception):  # not a client of the known shape: its own retries end with the turn
        fresh = type(resource)(copy(max_retries=0, timeout=timeout_s))
        return getattr(fresh, function.__name__)
    return function


def is_temporary(error: BaseException) -> bool:
    """Check whether a failed request may succeed later."""
    status = find_status(error)
    if status is not None:
        return is_retryable_status(status)
    names = {kind.__name__ for kind in type(error).__mro__}
    return not names.isdisjoint(_TEMPORARY) and not is_unreachable(error)


def is_unbilled(error: BaseException) -> bool:
    """Check whether a failed request is not billed: it was answered with an error, or not delivered."""
    status = find_status(error)
    return is_unreachable(error) or (status is not None and status >= 400)


def find_usage(reply: Any) -> Usage | None:
    """Return the usage of a reply: of an SDK, of litellm, of httpx or as a mapping. None means that it has none."""
    usage = _find_usage_field(reply)
    if usage is None and not isinstance(reply, Mapping):
        usage = _find_usage_field(_read_body(getattr(reply, "http_response", reply)))
    if usage is None:
        return None
    with suppress(ConfigError):
        return Usage.of(usage)
    return None


def _find_usage_field(source: Any) -> object:
    return next((usage for name in _USAGE_FIELDS if (usage := _get(source, name)) is not None), None)


def find_service_tier(reply: Any) -> str | None:
    """Return the service tier that a reply or its usage names. None means the usual one."""
    body: Any = reply
    if not isinstance(reply, Mapping):
        body = _read_body(getattr(reply, "http_response", reply)) or reply
    for source in (body, _get(body, "usage")):
        tier = _get(source, "service_tier")
        if isinstance(tier, str):
            return tier
    return None


def _get(source: Any, name: str) -> Any:
    if isinstance(source, Mapping):
        return cast("Mapping[str, Any]", source).get(name)
    return getattr(source, name, None)


def _read_body(response: Any) -> Mapping[str, object]:
    read = getattr(response, "json", None)
    if callable(read) and hasattr(response, "status_code"):
        with suppress(Exception):  # a stream that is not read yet, or no JSON
            body = read()
            if isinstance(body, Mapping):
                return cast("Mapping[str, object]", body)
    return {}


def find_status(source: object) -> int | None:
    """Return the HTTP status of a reply or an error. None means that it has none."""
    if isinstance(source, Mapping):  # some replies are mappings whose attributes are their keys
        return None
    status = getattr(source, "status_code", None)
    if status is None:  # httpx.HTTPStatusError
        status = getattr(getattr(source, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def _compute_pause_s(error: Exception, attempt: int) -> float:
    """Return the seconds to wait: doubled each time, with jitter, and at least what the server asks for."""
    usual = min(_MAX_BACKOFF_S, _FIRST_BACKOFF_S * 2 ** (attempt - 1)) * random.uniform(0.5, 1.0)
    headers = getattr(getattr(error, "response", None), "headers", None)
    asked = parse_retry_after(cast("Mapping[str, str]", headers)) if isinstance(headers, Mapping) else None
    return max(asked or 0.0, usual)
