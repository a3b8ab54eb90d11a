"""Commands that start another one: `env`, `timeout`, `nice` and the like, and those that hide it, such as shells."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import PurePath

from ...errors import UsageError

_WRAPPERS: dict[str, tuple[int, frozenset[str]]] = {
    "timeout": (1, frozenset({"-s", "--signal", "-k", "--kill-after"})),
    "gtimeout": (1, frozenset({"-s", "--signal", "-k", "--kill-after"})),
    "nice": (0, frozenset({"-n", "--adjustment"})),
    "ionice": (0, frozenset({"-c", "--class", "-n", "--classdata"})),
    "stdbuf": (0, frozenset({"-i", "--input", "-o", "--output", "-e", "--error"})),
    "time": (0, frozenset({"-f", "--format", "-o", "--output"})),
    "caffeinate": (0, frozenset({"-t", "-w"})),
    "taskset": (1, frozenset()),
    "nohup": (0, frozenset()),
    "setsid": (0, frozenset()),
    "unbuffer": (0, frozenset()),
    "chronic": (0, frozenset()),
}
"""Commands that run another one with this environment: how many words are their own, and options with a value."""
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "fish"})
_KEYWORDS = frozenset({"if", "then", "else", "elif", "while", "until", "do", "!", "{", "exec", "command", "eval"})
_OPERATORS = "();<>|&`"
_HIDING = frozenset({"sudo", "doas", "su", "ssh", "docker", "podman", "script", "tmux", "screen", "xargs", "parallel"})
"""Commands that run another one in an environment that the gateway does not make, or with arguments of their own."""


def get_name(path: str) -> str:
    """Return the name of an executable."""
    return PurePath(path).name.removesuffix(".exe").removesuffix(".cmd")


def open_wrappers(command: Sequence[str], environment: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return the wrappers that stay in front of a command, and the command itself.

    `env` is taken out: what it sets is put into `environment`, so that it cannot beat what the gateway sets.
    """
    wrappers, inner = list[str](), list(command)
    while inner:
        name = get_name(inner[0])
        if name == "env":
            inner = _apply_env(inner[1:], environment)
        elif name in _WRAPPERS:
            words, with_value = _WRAPPERS[name]
            start = skip_options(inner, 1, with_value) + words
            wrappers, inner = [*wrappers, *inner[:start]], inner[start:]
        else:
            return wrappers, inner
    return [], list(command)  # they start nothing


def skip_options(command: Sequence[str], at: int, with_value: frozenset[str]) -> int:
    """Return the index of the first word from `at` on that is neither an option nor its value."""
    while at < len(command) and command[at].startswith("-"):
        if command[at] == "--":
            return at + 1
        at += 2 if command[at] in with_value else 1
    return at


def iter_hidden(command: Sequence[str]) -> Iterator[list[str]]:
    """Yield the commands that a shell, or a command such as sudo, would start by itself."""
    name = get_name(command[0])
    if name in _SHELLS:
        for option, text in pairwise(command):
            if re.fullmatch(r"-\w*c", option):
                yield from _split_shell(text)
    elif name in _HIDING:
        for at, word in enumerate(command[1:], 1):
            yield list(command[at:])
            yield from _split_shell(word) if " " in word else ()


def _split_shell(text: str) -> Iterator[list[str]]:
    """Yield the simple commands in a text for a shell, without the words before them such as `then` and `A=1`."""
    lexer = shlex.shlex(text.replace("\n", " ; "), posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:  # a quote without its end
        words = text.split()
    command: list[str] = []
    for word in [*words, ";"]:
        if set(word) <= set(_OPERATORS):
            if command:
                yield command
            command = []
        elif command or not (word in _KEYWORDS or re.match(r"\w+=", word)):
            command.append(word)


def _apply_env(words: list[str], environment: dict[str, str]) -> list[str]:
    """Apply the options and variables of `env`, and return the command that it would start."""
    while words:
        word = words[0]
        name, separator, value = word.partition("=")
        if word in ("-i", "-", "--ignore-environment"):
            environment.clear()
        elif word in ("-u", "--unset") and len(words) > 1:
            environment.pop(words.pop(1), None)
        elif name == "--unset":
            environment.pop(value, None)
        elif word in ("-S", "--split-string") and len(words) > 1:
            words[1:2] = shlex.split(words[1])
        elif word.startswith("-") and word not in ("--", "-v", "--debug"):
            raise UsageError(f"flyball exec does not know the option {word} of env: leave it out")
        elif separator and not word.startswith("-"):
            environment[name] = value
        elif not word.startswith("-"):
            break
        del words[0]
    return words
