"""Adapter for LiteLLM.

    with litellm.govern(Limits(turns=10)) as llm:
        reply = llm.completion(model="gpt-4o", messages=messages, tools=tools)

`completion` and `acompletion` take and return what LiteLLM's own take and return, or those of a `Router`. At a limit,
the next call of each conversation asks for a report, without tool calls. LiteLLM's callbacks cannot refuse a request,
so calls of `litellm.completion` itself are not governed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from .adapter_options import AdapterOptions, choose_options
from .framework_run import FrameworkRun
from .frameworks import LITELLM
from .results import attach

if TYPE_CHECKING:
    from ..budget.limits import Limits
    from ..result import Result


def govern(
    limits: Limits | None = None, *, router: Any = None, options: AdapterOptions | None = None
) -> GovernedLiteLLM:
    """Return LiteLLM within limits, for a `with` block. With `router`, the calls go to that `litellm.Router`.

    Pass limits, or options with more than limits.
    """
    return GovernedLiteLLM(choose_options(limits, options), router)


class GovernedLiteLLM:
    """LiteLLM, or a router of it, whose calls are governed within a `with` block."""

    def __init__(self, options: AdapterOptions, router: Any = None) -> None:
        from .litellm_calls import LiteLLMCalls

        module = LITELLM.load()
        self._run = FrameworkRun(options, LITELLM)
        self._calls = LiteLLMCalls(self._run, module, router)
        attach(self, self._run)

    @property
    def result(self) -> Result:
        """Result of the run, after the `with` block."""
        return self._run.result

    def completion(self, model: str, messages: list[Any], **arguments: Any) -> Any:
        """Call `litellm.completion` within the limits. With `stream=True`, return an iterator over its chunks."""
        return self._calls.complete(model, messages, arguments)

    async def acompletion(self, model: str, messages: list[Any], **arguments: Any) -> Any:
        """Call `litellm.acompletion` in the same way."""
        return await self._calls.acomplete(model, messages, arguments)

    def cancel(self) -> bool:
        """Cancel the run at its next call; return False if it has already ended."""
        return self._run.cancel()

    def __enter__(self) -> Self:
        self._run.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._run.complete(self._calls.text)
        else:
            attach(error, self._run)
        self._run.__exit__(kind, error, trace)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.__exit__(kind, error, trace)
