"""Conversion of images between the formats of the providers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from ..message import ANTHROPIC, GEMINI, OPENAI

Json = dict[str, Any]

_STANDARD_BASE64 = str.maketrans("-_", "+/")
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
        case _:
            return _read_gemini_url(_get_dict(part, "value"))


def _read_gemini_url(part: Json) -> str | None:
    """Return the address of an image in Gemini's format, whose keys and base64 have two spellings."""
    inline, file = _get_dict(part, "inlineData"), _get_dict(part, "fileData")
    if not str(get_either(inline or file, "mimeType")).startswith("image/"):
        return None
    if inline:
        media, data = get_either(inline, "mimeType"), str(inline.get("data", ""))
        return f"data:{media};base64,{data.translate(_STANDARD_BASE64)}"
    return str(get_either(file, "fileUri"))


def _get_dict(part: Json, key: str) -> Json:
    value = get_either(part, key)
    return cast("Json", value) if isinstance(value, dict) else {}


def get_either(data: Mapping[str, Any], key: str) -> Any:
    """Return the value of a key. Gemini accepts `functionCall` and `function_call`."""
    return data.get(key, data.get(to_snake(key)))


def to_snake(key: str) -> str:
    """Return the other spelling of a key."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)
