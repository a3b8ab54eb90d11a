"""Build hook: the README of the distribution, with links that work outside of the repository.

`[tool.hatch.metadata.hooks.custom] repository` in pyproject.toml is the only place with the address of the repository.
While it is empty, the links into the repository become plain text, and the distribution names no project URL.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"\[((?:[^\[\]`]|`[^`]*`)+)\]\((?!https?://|mailto:|#)([^()\s]+)\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


class ReadmeHook(MetadataHookInterface):
    """Sets the readme and the project URLs."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add both to the metadata of the distribution."""
        config = cast("dict[str, Any]", self.config)  # pyright: ignore[reportUnknownMemberType]
        repository = str(config.get("repository", "")).rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": link_absolutely(text, repository)}
        urls = {"Source": repository, "Changelog": f"{repository}/blob/main/CHANGELOG.md"}
        metadata["urls"] = urls if repository else {}


def link_absolutely(text: str, repository: str) -> str:
    """Return Markdown whose links into the repository are absolute, or plain text without an address.

    Code blocks stay as they are.
    """
    target = rf"[\1]({repository}/blob/main/\2)" if repository else r"\1"
    parts = _FENCE.split(text)
    return "".join(part if n % 2 else _LINK.sub(target, part) for n, part in enumerate(parts))
