"""Conversion of images between the formats of the providers."""

from __future__ import annotations

import re
from typing import Any

from ..message import ANTHROPIC, GEMINI, OPENAI

Json = dict[str, Any]

_IMAGE_NAMES = {
    "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp",
}  # fmt: skip


def convert_image(part: Json, shape: str) -> Json | None:
    """Return another provider's image in this format. None for other parts, and for files stored at a provider."""
    url = _read_url(part)
    if url is None:
        return None
    if shape == OPENAI:
        return {"type": "image_url", "image_url": {"url": url}}
    inline = re.fullmatch(r"data:([^;,]+);base64,(.*)", url, re.DOTALL)
    if shape == ANTHROPIC:
        source = (
            {"type": "base64", "media_type": inline[1], "data": inline[2]} if inline else {"type": "url", "url": url}
        )
        return {"type": "image", "source": source}
    if shape == GEMINI:
        if inline:
            return {"inlineData": {"mimeType": inline[1], "data": inline[2]}}
        ending = url.partition("?")[0].rpartition(".")[2].lower()
        return {"fileData": {"mimeType": _IMAGE_NAMES.get(ending, "image/jpeg"), "fileUri": url}}
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def _read_url(part: Json) -> str | None:
    """Return the address of an image, which may be a `data:` URL."""
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return url
        case {"type": "image", "source": {"type": "url", "url": str(url)}}:
            return url
        case {"type": "image", "source": {"type": "base64", "media_type": str(media), "data": str(data)}}:
            return f"data:{media};base64,{data}"
        case {"type": "input_image", "image_url": str(url)}:
            return url
        case {"value": {"inlineData": {"mimeType": str(media), "data": str(data)}}} if media.startswith("image/"):
            return f"data:{media};base64,{data}"
        case {"value": {"fileData": {"mimeType": str(media), "fileUri": str(url)}}} if media.startswith("image/"):
            return url
        case _:
            return None
