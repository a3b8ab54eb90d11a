"""Options of the Claude Agent SDK whose program is governed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

from claude_agent_sdk import ClaudeAgentOptions  # pyright: ignore[reportMissingModuleSource]

if TYPE_CHECKING:
    from collections.abc import Mapping


class QueriesRun(Protocol):
    """Run of all queries with some options."""

    def enter(self) -> None:
        """Begin the block of the options."""
        ...

    def leave(self, error: BaseException | None) -> None:
        """End the block, and the run with it."""
        ...


class GovernedVariables(dict[str, str]):
    """Variables of the program. The run ends, at the latest, when nothing refers to them any more.

    The SDK copies options, but not these.
    """

    def __init__(self, variables: Mapping[str, str], run: QueriesRun) -> None:
        super().__init__(variables)
        self.run = run


class GovernedOptions(ClaudeAgentOptions):
    """Options for queries that are one run. It ends with the `with` block of the options, if there is one."""

    def __enter__(self) -> Self:
        if isinstance(self.env, GovernedVariables):
            self.env.run.enter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(self.env, GovernedVariables):
            self.env.run.leave(error)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.__exit__(kind, error, trace)
