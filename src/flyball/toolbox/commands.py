"""Tools that run Python code and shell commands.

Each call runs in a process of its own. By default a person must approve each call.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated

from ..errors import ConfigError, UsageError
from ..tools import Approve, Options, Tool, ToolContext
from .process import run_command

ENVIRONMENT = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TERM", "COLORTERM", "NO_COLOR", "COLUMNS", "LINES",
        "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "VIRTUAL_ENV", "CONDA_PREFIX", "SSL_CERT_FILE",
        "SSL_CERT_DIR", "SYSTEMROOT",
    }
)  # fmt: skip
"""Variables that programs inherit, besides those that begin with `LC_`. None of them carries a secret by custom."""


def python(
    cwd: str | os.PathLike[str] = ".",
    *,
    approve: Approve = True,
    timeout: float = 60.0,
    env: Mapping[str, str] | None = None,
    pass_env: Sequence[str] = (),
) -> list[Tool]:
    """Return the tool `python`, which runs code in a fresh interpreter.

    Args:
        cwd: the working directory.
        approve: whether a person must approve each call.
        timeout: seconds for each call.
        env: variables to add to the environment.
        pass_env: names of further variables of this process that the program inherits. Others than `PATH`, `HOME`,
            `LANG` and the like are not passed.

    >>> python()
    [<Tool python(code)>]
    """
    runner = _Runner("python", cwd, env, pass_env, lambda code: [sys.executable, "-I", "-u", "-X", "utf8", "-c", code])
    return [Tool(runner.python, **_build_options(approve, timeout))]


def shell(
    cwd: str | os.PathLike[str] = ".",
    *,
    approve: Approve = True,
    timeout: float = 60.0,
    env: Mapping[str, str] | None = None,
    pass_env: Sequence[str] = (),
) -> list[Tool]:
    """Return the tool `shell`, which runs commands with `/bin/sh`.

    Args:
        cwd: the working directory.
        approve: whether a person must approve each call.
        timeout: seconds for each call.
        env: variables to add to the environment.
        pass_env: names of further variables of this process that the program inherits. Others than `PATH`, `HOME`,
            `LANG` and the like are not passed.

    >>> shell()
    [<Tool shell(command)>]
    """
    runner = _Runner("shell", cwd, env, pass_env, lambda command: ["/bin/sh", "-c", command])
    return [Tool(runner.shell, **_build_options(approve, timeout))]


def select_environment(environment: Mapping[str, str], names: Collection[str] = ()) -> dict[str, str]:
    """Return the variables that a program inherits: the usual ones, and those named.

    A list of what is allowed, because no list of names and patterns knows every secret.

    >>> select_environment({"PATH": "/bin", "LC_ALL": "C", "DB_PW": "x", "CI": "1"}, ["CI"])
    {'PATH': '/bin', 'LC_ALL': 'C', 'CI': '1'}
    """
    return {
        name: value
        for name, value in environment.items()
        if name in ENVIRONMENT or name in names or name.startswith("LC_")
    }


def _build_options(approve: Approve, timeout: float) -> Options:
    return Options(effects="write", approve=approve, timeout=timeout)


class _Runner:
    def __init__(
        self,
        where: str,
        cwd: str | os.PathLike[str],
        env: Mapping[str, str] | None,
        pass_env: Sequence[str],
        command: Callable[[str], list[str]],
    ) -> None:
        if not hasattr(os, "fork"):
            raise UsageError(f"the tool {where} needs Linux or macOS, and this is {sys.platform}")
        self._cwd = os.path.realpath(cwd)
        if not os.path.isdir(self._cwd):  # noqa: PTH112
            raise ConfigError(f"{where}, cwd", cwd, "a folder that exists")
        if isinstance(pass_env, str):  # each of its letters would be a name
            raise ConfigError(f"{where}, pass_env", pass_env, "a list of names of variables")
        self._env = dict(env or {})
        self._pass_env = frozenset(pass_env)
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
        env = select_environment(os.environ, self._pass_env) | self._env
        return run_command(self._command(text), cwd=self._cwd, env=env, token=ctx.token)
