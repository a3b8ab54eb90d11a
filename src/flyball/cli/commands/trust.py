"""`flyball trust`: allow a project file to do more than lower limits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ...errors import UsageError, quote_value
from ...settings import ProjectFile, Settings, locate, restrict_loading
from ..output import USER_ERRORS, confirm, exit_with_error, print_line, print_table
from ..trust import TrustStore

_FOLDER = "Folder of the project. Default: this one."


def trust(
    folder: Annotated[Path | None, typer.Argument(metavar="FOLDER", help=_FOLDER)] = None,
    as_list: Annotated[bool, typer.Option("--list", help="List the trusted files.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Withdraw the trust in the file.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Trust the file without asking.")] = False,
) -> None:
    """Show the settings file of a project, and trust it after a question.

    Until then, the file may only lower limits. The trust is for this content at this place: it lapses when the file
    changes.
    """
    try:
        store = TrustStore()
        if as_list:
            _print_list(store)
        elif remove:
            _remove(store, folder)
        else:
            _trust(store, folder, yes)
    except USER_ERRORS as error:
        raise exit_with_error(error) from None


def _trust(store: TrustStore, folder: Path | None, yes: bool) -> None:
    settings = _load(folder)
    file = _require_file(settings)
    print_line(f"{file.location} sets:")
    for setting in settings:
        if setting.is_from_project:
            print_line(f"  {setting.key} = {quote_value(setting.value)}")
    if store.is_trusted(file):
        print_line("it is trusted already")
    elif confirm("Trust it?", yes, "it is not trusted"):
        store.add(file)
        print_line("it is trusted until it changes")


def _remove(store: TrustStore, folder: Path | None) -> None:
    locations = list(_list_locations(folder))
    removed = [location for location in locations if store.remove(location)]
    if not removed:
        raise UsageError(f"no trusted settings file: {' and '.join(locations)} are not in `flyball trust --list`")
    for location in removed:
        print_line(f"{location} is no longer trusted")


def _list_locations(folder: Path | None) -> Iterator[str]:
    """Yield where the file can be. It may have been deleted, or be found no more."""
    path = folder or Path.cwd()
    if path.name in ("flyball.toml", "pyproject.toml"):
        yield locate(path)
    else:
        yield from (locate(path / name) for name in ("flyball.toml", "pyproject.toml"))


def _print_list(store: TrustStore) -> None:
    rows = [(location, _describe(location, digest)) for location, digest in sorted(store.read().items())]
    if rows:
        print_table(("File", "State"), rows)
    else:
        print_line("no file is trusted")


def _describe(location: str, digest: str) -> str:
    from ..._internal.toml import TomlDocument

    if not Path(location).exists():
        return "missing"
    try:
        return "trusted" if TomlDocument.read(Path(location)).digest == digest else "changed, so not trusted"
    except USER_ERRORS:
        return "unreadable, so not trusted"


def _load(folder: Path | None) -> Settings:
    """Load the settings of a folder without a check: they are only shown."""
    with restrict_loading(None):
        return Settings.load(folder, environ={})


def _require_file(settings: Settings) -> ProjectFile:
    if settings.project_file is None:
        raise UsageError("there is no flyball.toml, nor a pyproject.toml with [tool.flyball], here or above")
    return settings.project_file
