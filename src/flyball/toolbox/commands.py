"""Tools that run Python code and shell commands.

Each call runs in a process of its own. By default a person must approve each call.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Annotated

from ..errors import ConfigError, UsageError
from ..tools import Approve, Options, Tool, ToolContext
from .process import run_command

_SECRET_NAME = re.compile(
    r"""
    SECRET | TOKEN | PASSW | PASSPHRASE | CREDENTIAL | APIKEY
    | (?:^|_) (?: KEYS? | AUTH | PASS | PWD | PAT | DSN | COOKIES? ) (?:_|$)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"""
    ://[^/\s@:]*+:[^/\s@]++@                                           # a URL with a password
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY
    | ^eyJ[\w-]{10,}\.                                                 # a JSON web token
    | ^(?:sk|pk|rk)[-_][\w-]{16,}$
    | ^(?:gh[oprsu]_|github_pat_|glpat-|hf_|npm_|pypi-|xox[a-z]-|AKIA|AIza)[\w-]{16,}$
    """,
    re.VERBOSE,
)
_HARMLESS_NAMES = frozenset({"PWD", "OLDPWD"})


def python(
    cwd: str | os.PathLike[str] = ".",
    *,
    approve: Approve = True,
    timeout: float = 60.0,
    env: Mapping[str, str] | None = None,
) -> list[Tool]:
    """Return the tool `python`, which runs code in a fresh interpreter.

    Args:
        cwd: the working directory.
        approve: whether a person must approve each call.
        timeout: seconds for each call.
        env: variables to add to the environment, from which secrets are removed.

    >>> python()
    [<Tool python(code)>]
    """
    runner = _Runner("python", cwd, env, lambda code: [sys.executable, "-I", "-u", "-X", "utf8", "-c", code])
    return [Tool(runner.python, **_build_options(approve, timeout))]


def shell(
    cwd: str | os.PathLike[str] = ".",
    *,
    approve: Approve = True,
    timeout: float = 60.0,
    env: Mapping[str, str] | None = None,
) -> list[Tool]:
    """Return the tool `shell`, which runs commands with `/bin/sh`.

    Args:
        cwd: the working directory.
        approve: whether a person must approve each call.
        timeout: seconds for each call.
        env: variables to add to the environment, from which secrets are removed.

    >>> shell()
    [<Tool shell(command)>]
    """
    runner = _Runner("shell", cwd, env, lambda command: ["/bin/sh", "-c", command])
    return [Tool(runner.shell, **_build_options(approve, timeout))]


def remove_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without variables that look like secrets.

    >>> remove_secrets({"PATH": "/bin", "OPENAI_API_KEY": "x", "KEYBOARD": "de", "DB": "pg://me:pw@host/db"})
    {'PATH': '/bin', 'KEYBOARD': 'de'}
    """
    return {
        name: value
        for name, value in environment.items()
        if name in _HARMLESS_NAMES or not (_SECRET_NAME.search(name) or _SECRET_VALUE.search(value))
    }


def _build_options(approve: Approve, timeout: float) -> Options:
    return Options(effects="write", approve=approve, timeout=timeout)


class _Runner:
    def __init__(
        self,
        where: str,
        cwd: str | os.PathLike[str],
        env: Mapping[str, str] | None,
        command: Callable[[str], list[str]],
    ) -> None:
        if not hasattr(os, "fork"):
            raise UsageError(f"the tool {where} needs Linux or macOS, and this is {sys.platform}")
        self._cwd = os.path.realpath(cwd)
        if not os.path.isdir(self._cwd):  # noqa: PTH112
            raise ConfigError(f"{where}, cwd", cwd, "a folder that exists")
        self._env = dict(env or {})
        self._command = command

    def python(
        self, ctx: ToolContext, code: Annotated[str, "complete program; its printed output is the result"]
    ) -> str:
        """Run Python code in a new interpreter. The result is its output. All its processes end with the call."""
        return self._run(ctx, code)

    def shell(
        self, ctx: ToolContext, command: Annotated[str, "command for /bin/sh; it has no input and no terminal"]
    ) -> str:
        """Run a shell command. The result is its exit code and output. All its processes end with the call."""
        return self._run(ctx, command)

    def _run(self, ctx: ToolContext, text: str) -> str:
        ctx.commit()
        env = remove_secrets(os.environ) | self._env
        return run_command(self._command(text), cwd=self._cwd, env=env, token=ctx.token)
