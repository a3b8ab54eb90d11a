"""One check, and its findings: errors and hints."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..errors import FlyballError


class Hint(str):
    """Optional part that is missing, with how to get it."""


@dataclass(frozen=True, slots=True)
class Check:
    """Named check of one thing."""

    name: str
    inspect: Callable[[], Iterable[str]]
    """Function that yields errors and hints. An exception counts as an error."""

    def find_errors(self) -> tuple[str, ...]:
        """Return the errors without hints. Never raises."""
        return tuple(finding for finding in self.run() if not isinstance(finding, Hint))

    def run(self) -> tuple[str, ...]:
        """Return errors and hints. Never raises."""
        try:
            return tuple(self.inspect())
        except FlyballError as error:
            return (str(error),)
        except Exception as error:
            return (f"{type(error).__name__}: {error}",)
