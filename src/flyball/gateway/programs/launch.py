"""Known program, an entry of their table, and its launch: command and environment, changed to ask the gateway."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from ...errors import Ungoverned
from ..address import GatewayAddress
from .settings_files import Json, parse_dotenv, strip_comments

HOW_TO_RUN_ANYWAY = " (--allow-ungoverned runs it anyway)"


@dataclass(frozen=True, slots=True, kw_only=True)
class SideRequest:
    """Marks of a request that a program makes beside its loop. All of them must be there."""

    name: str
    """Purpose of the request."""
    agents: tuple[str, ...]
    """Starts of the user agent. One of them must fit."""
    text: str = ""
    """Text in the instructions, or in the first or last message."""
    path: str = ""
    """Path of the API, if it alone is the mark."""
    header: tuple[str, str] | None = None
    """Header, and a text in its value."""
    max_output_tokens: int | None = None
    is_compaction: bool = False
    """Whether the reply replaces the history of its conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownProgram:
    """Fixed facts about a program. They were so in the tested version."""

    name: str
    """Name of its executable."""
    title: str
    version: str
    """Version it was tested with."""
    wires: tuple[str, ...]
    """APIs that it asks, as texts for users."""
    example: str
    """Command line to paste, without `flyball exec --`."""
    enforced: str
    """Limits that hold, as a text for users."""
    pointed_by: str
    """How it is pointed at the gateway, as a text for users. Empty if it cannot be."""
    escapes: tuple[str, ...] = ()
    """Requests that do not come through the gateway, as texts for users."""
    elsewhere: tuple[str, ...] = ()
    """Options and commands of it with which another process, or its vendor, runs the loop. They are refused."""
    packages: tuple[str, ...] = ()
    """Names of its packages, as npx, uvx and folders of modules have them."""
    modules: tuple[str, ...] = ()
    """Modules that `python -m` runs."""
    other_names: tuple[str, ...] = ()
    """Other names of its executable."""
    prepare: Callable[[Launch], None] | None = None
    """Reads the program's own settings, before the gateway. Raises Ungoverned if it cannot be pointed at one."""
    point: Callable[[Launch], None] | None = None
    """Changes the command and the environment. None if the variables suffice."""
    side_requests: tuple[SideRequest, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names of its executable."""
        return (self.name, *self.other_names)


class Launch:
    """Command of a program on its way to a gateway. Use it in a `with` block; its end removes temporary files."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        program: KnownProgram | None = None,
        start: int = 1,
        named: Collection[str] = (),
    ) -> None:
        self.program = program
        """Program that the command runs. None if it is not known."""
        self._given = tuple(command), dict(environment)
        self.command = list(command)
        self.start = start
        """Index of the program's first argument."""
        self.environment = dict(environment)
        """Environment that the program would have, with what its own settings add to it."""
        self.named = named
        """Providers whose address the user gave to `flyball exec`."""
        self.folder = Path.cwd()
        """Folder in which the program starts."""
        self.own_keys: dict[str, list[str]] = {}
        """Keys that the program sends by itself, by provider."""
        self.is_plan = False
        """Whether the program is logged in to a subscription, so that dollars are imputed."""
        self.changes: list[str] = []
        """Phrases about what was done to the command, for people."""
        self.governed: dict[str, str] = {}
        """Environment that the program gets."""
        self.addresses: Mapping[str, GatewayAddress] = {}
        """Gateway in the place of each provider."""
        self._folder: Path | None = None
        self._mirrors: list[tuple[Path, Path, Mapping[str, Json]]] = []

    def prepare(self) -> None:
        """Read the program's own settings. Raises Ungoverned if it cannot be pointed at a gateway."""
        if self.program is None:
            return
        self._check_elsewhere(self.program)
        if self.program.prepare is not None:
            self.program.prepare(self)

    def point(self, governed: Mapping[str, str], addresses: Mapping[str, GatewayAddress]) -> None:
        """Point the program at the gateway. Raises Ungoverned if that is not possible."""
        self.governed, self.addresses = dict(governed), addresses
        if self.program is not None and self.program.point is not None:
            self.program.point(self)

    def _check_elsewhere(self, program: KnownProgram) -> None:
        """Refuse options and commands of a program with which another process, or its vendor, runs the loop."""
        words = self.arguments
        before = words[: words.index("--")] if "--" in words else words
        found = next((word for word in before if word.partition("=")[0] in program.elsewhere), None)
        if found is not None:
            name = found.partition("=")[0]
            raise self.refuse(f"with {name}, its loop runs in another process or at its vendor", f"leave out {name}")

    def reset(self, change: str) -> None:
        """Return to the command as it was given."""
        command, environment = self._given
        self.command, self.environment = list(command), dict(environment)
        self.own_keys, self.is_plan, self.changes = {}, False, [change]

    def describe_changes(self) -> tuple[str, ...]:
        """Return a sentence for people about what was done to the command, if anything was."""
        if not self.changes:
            return ()
        title = ""
        if self.program is not None and self.governed:
            title = f"{self.program.title} (tested with {self.program.version}): "
        return (f"{title}{'; '.join(self.changes)}",)

    @property
    def arguments(self) -> list[str]:
        """Arguments of the program itself."""
        return self.command[self.start :]

    def refuse(self, reason: str, remedy: str) -> Ungoverned:
        """Return the error for a program that would go around the gateway."""
        title = "" if self.program is None else f"{self.program.title}: "
        return Ungoverned(f"NOT GOVERNED: {title}{reason}: {remedy}{HOW_TO_RUN_ANYWAY}")

    def check_address(self, provider: str, variable: str, url: object, source: Path) -> None:
        """Refuse an address in a file of the project: it would receive the user's key."""
        if isinstance(url, str) and url and url != self.environment.get(variable) and provider not in self.named:
            raise self.refuse(
                f"{source} names an address, to which your key would be sent",
                f"if you trust it, name it with --upstream {provider}=URL",
            )

    def add_arguments(self, *arguments: str) -> None:
        """Add arguments before all others of the program."""
        self.command[self.start : self.start] = arguments

    def set(self, variable: str, value: str) -> None:
        """Set a variable of the program."""
        self.governed[variable] = value

    def iter_options(self, *names: str) -> Iterator[str]:
        """Yield the values of an option, written as `--name value`, `--name=value` or `-nvalue`."""
        yield from (value for _, _, value in self._find_options(names))

    def get_option(self, *names: str) -> str | None:
        """Return the last value of an option, or None."""
        values = list(self.iter_options(*names))
        return values[-1] if values else None

    def pop_option(self, *names: str, fits: Callable[[str], bool] | None = None) -> str | None:
        """Take an option out of the command, if its value fits. Return the last value, or None."""
        found = [option for option in self._find_options(names) if fits is None or fits(option[2])]
        for index, words, _ in reversed(found):
            del self.command[self.start + index : self.start + index + words]
        return found[-1][2] if found else None

    def _find_options(self, names: Collection[str]) -> list[tuple[int, int, str]]:
        """Return the index of each such option among the arguments, its number of words, and its value."""
        arguments, index = self.arguments, 0
        found: list[tuple[int, int, str]] = []
        while index < len(arguments) and arguments[index] != "--":
            word, words = arguments[index], 1
            name, separator, value = word.partition("=")
            if word in names and index + 1 < len(arguments):
                words = 2
                found.append((index, words, arguments[index + 1]))
            elif name in names and separator:
                found.append((index, words, value))
            elif word[:2] in names and word[2:]:
                found.append((index, words, word[2:]))
            index += words
        return found

    def find_home(self) -> Path:
        """Return the home of the user."""
        return Path(self.environment.get("HOME") or Path.home())

    def find_folder(self, variable: str, *otherwise: str) -> Path:
        """Return the folder that a variable names, or one below the user's home."""
        value = self.environment.get(variable)
        return Path(value).expanduser() if value else self.find_home().joinpath(*otherwise)

    def read_json(self, path: Path) -> Json:
        """Return a JSON object from a settings file, which may have comments. {} if there is none.

        Raises Ungoverned for one that cannot be read: it could lead around the gateway.
        """
        return self.parse_json(self.read_text(path), str(path))

    def parse_json(self, text: str, source: str) -> Json:
        """Return a JSON object from a text, which may have comments. {} if it is empty."""
        if not text.strip():
            return {}
        value: object = None
        for source_text in (text, strip_comments(text)):
            with suppress(ValueError, RecursionError):
                value = json.loads(source_text)
                break
        if not isinstance(value, dict):
            raise self.refuse(f"{source} is no JSON object", "correct it")
        return cast("Json", value)

    def read_text(self, path: Path) -> str:
        """Return the text of a settings file; "" if there is none."""
        try:
            return path.read_text("utf-8", "replace") if path.is_file() else ""
        except OSError as error:
            raise self.refuse(f"{path} cannot be read ({error.strerror})", "make it readable") from None

    def read_dotenv(self, path: Path) -> dict[str, str]:
        """Return the variables of a `.env` file. {} if there is none."""
        return parse_dotenv(self.read_text(path))

    def write_file(self, name: str, text: str) -> Path:
        """Write a temporary file that only the user can read."""
        path = self._find_folder() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(0o600)
        path.write_text(text, "utf-8")
        return path

    def mirror(self, folder: Path, files: Mapping[str, Json]) -> Path:
        """Return a temporary folder that stands for a folder of the program, with some JSON files replaced.

        All other entries are links to the real ones. What the program itself writes goes back to its folder at the end.
        """
        copy = self._find_folder() / folder.name
        copy.mkdir(mode=0o700)
        for entry in folder.iterdir() if folder.is_dir() else ():
            if entry.name not in files:
                (copy / entry.name).symlink_to(entry.absolute(), target_is_directory=entry.is_dir())
        for name, content in files.items():
            (copy / name).touch(0o600)
            (copy / name).write_text(json.dumps(content), "utf-8")
        self._mirrors.append((copy, folder, files))
        return copy

    def _find_folder(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="flyball-exec-"))
        return self._folder

    def __enter__(self) -> Launch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the temporary files, and keep what the program created beside them."""
        for copy, folder, files in self._mirrors:
            for entry in copy.iterdir():
                if entry.is_symlink():
                    continue
                with suppress(OSError, ValueError):
                    if entry.name in files:
                        _write_back(folder / entry.name, files[entry.name], json.loads(entry.read_text("utf-8")))
                    elif entry.is_dir():
                        shutil.copytree(entry, folder / entry.name, symlinks=True, dirs_exist_ok=True)
                    else:
                        folder.mkdir(parents=True, exist_ok=True)
                        shutil.move(entry, folder / entry.name)
        self._mirrors.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def _write_back(path: Path, given: Json, written: object) -> None:
    """Put what the program changed in its copy of a settings file, such as a renewed login, into the file itself."""
    if not isinstance(written, dict):
        return
    settings = cast("Json", written)
    changed = {name: value for name, value in settings.items() if given.get(name) != value}
    if not changed:
        return
    own: Json = json.loads(path.read_text("utf-8")) if path.is_file() else {}  # one with comments stays as it is
    text = json.dumps(own | changed, indent=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.touch(0o600)
    path.write_text(text, "utf-8")
