"""Images, documents and recordings in requests, and about how many tokens they have.

Providers count the pixels, pages and seconds of a file, not its bytes: a photo in base64 is as long as a novel. Data of
another kind counts as the text that it is.
"""

from __future__ import annotations

import re
import string
import zlib
from binascii import Error, a2b_base64
from collections.abc import Iterator, Mapping
from typing import Any, cast

MIN_CHARACTERS = 2_000
"""Shortest base64 text that is taken for a file. A shorter one has no more tokens than an image."""
IMAGE_TOKENS = 1_600
"""Tokens of a usual image."""
PAGE_TOKENS = 3_000
"""Tokens of a page of a PDF document. Anthropic reports 1,500 to 3,000."""
_BYTES_PER_TOKEN = 125
"""Bytes of a recording for each token: speech at 4,000 bytes a second, and 32 tokens for that."""
_TEXT_KEYS = frozenset({"content", "text", "output", "input", "arguments"})
"""Keys of texts. The model reads them, even if they look like data."""
_MAX_DEPTH = 20
_START_CHARACTERS = 64
"""Characters of base64 that tell the kind of a file."""

_CHARACTERS = f"{string.ascii_letters}{string.digits}+/=_-:;,.\r\n".encode()
"""Characters of base64, which may have lines, and of what stands before it in a URL with data."""
_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
_IMAGE_STARTS = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"II*\x00", b"MM\x00*")
_IMAGE_BRANDS = frozenset({b"heic", b"heix", b"heim", b"mif1", b"msf1", b"avif", b"avis"})
_RECORDING_STARTS = (b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b"\xff\xf1", b"OggS", b"fLaC", b"\x1aE\xdf\xa3")
_PDF_START = b"%PDF-"
_PDF_BYTES_PER_PAGE = 10_000
"""Bytes of a page in a document whose pages cannot be found, because it is encrypted or damaged."""
_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_PACKED, _MAX_HEADER = b"/ObjStm", 400
"""Type of a stream of objects, and the most bytes between it and its data."""
_MAX_UNPACKED = 20_000_000


def is_base64(text: bytes) -> bool:
    """Check whether a text is long enough for a file, and has only characters of base64."""
    return len(text) >= MIN_CHARACTERS and not text.translate(None, _CHARACTERS)


def is_text_key(key: str) -> bool:
    """Check whether the model reads the value of a key as a text."""
    return key in _TEXT_KEYS


def estimate_base64_tokens(text: bytes, image_tokens: int = IMAGE_TOKENS) -> int | None:
    """Return about the tokens of a file in base64, or in a URL with base64. None if it is no known kind of file."""
    if text.startswith(b"data:"):
        text = text.partition(b"base64,")[2]
    kind = _find_kind(_decode(text[:_START_CHARACTERS]))
    return (
        estimate_data_tokens(_decode(text)) if kind == "document" else _estimate(kind, len(text) * 3 // 4, image_tokens)
    )


def estimate_data_tokens(data: bytes, image_tokens: int = IMAGE_TOKENS) -> int | None:
    """Return about the tokens of the data of a file. None if it is no known kind of file."""
    kind = _find_kind(data)
    return PAGE_TOKENS * count_pages(data) if kind == "document" else _estimate(kind, len(data), image_tokens)


def take_out_files(value: Any, image_tokens: int = IMAGE_TOKENS) -> tuple[Any, int]:
    """Return a part of a message without the data of its files, and about the tokens of those."""
    files: list[int] = []
    return _take_out(value, "", image_tokens, files, _MAX_DEPTH), sum(files)


def _take_out(value: Any, key: str, image_tokens: int, files: list[int], depth: int) -> Any:
    tokens = None
    if isinstance(value, str):
        if len(value) >= MIN_CHARACTERS and key not in _TEXT_KEYS and value.isascii():
            text = value.encode()
            tokens = estimate_base64_tokens(text, image_tokens) if is_base64(text) else None
    elif isinstance(value, bytes):
        tokens = estimate_data_tokens(value, image_tokens)
    elif depth and isinstance(value, Mapping):
        table = cast("Mapping[Any, Any]", value)
        return {name: _take_out(one, str(name), image_tokens, files, depth - 1) for name, one in table.items()}
    elif depth and isinstance(value, list | tuple):
        return [_take_out(one, key, image_tokens, files, depth - 1) for one in cast("list[Any]", value)]
    elif depth and isinstance(getattr(value, "data", None), bytes):
        return _take_out(value.data, "data", image_tokens, files, depth - 1)
    if tokens is None:
        return value
    files.append(tokens)
    return ""


def count_pages(data: bytes) -> int:
    """Return the number of pages of a PDF document, or a guess if it is encrypted or damaged."""
    pages, left = len(_PAGE.findall(data)), _MAX_UNPACKED
    for start in _find_packed(data):
        try:
            unpacked = zlib.decompressobj().decompress(memoryview(data)[start:], left)
        except zlib.error:
            continue
        pages, left = pages + len(_PAGE.findall(unpacked)), left - len(unpacked)
        if left <= 0:
            break
    return pages if pages and left > 0 else max(pages, 1 + len(data) // _PDF_BYTES_PER_PAGE)


def _find_packed(data: bytes) -> Iterator[int]:
    """Yield where the data of each compressed stream of objects begins."""
    found = data.find(_PACKED)
    while found >= 0:
        start = data.find(b"stream", found, found + _MAX_HEADER) + len(b"stream")
        if start > found:
            yield start + (2 if data[start : start + 1] == b"\r" else 1)
        found = data.find(_PACKED, max(found + 1, start))


def _decode(text: bytes) -> bytes:
    """Return the data of a base64 text, or what stands before a mistake in it."""
    try:
        return a2b_base64(text.translate(_TO_STANDARD) + b"==")
    except Error:
        return b""


def _find_kind(start: bytes) -> str | None:
    """Return the kind of a file by its first bytes. None if it is not known."""
    if start.startswith(_PDF_START):
        return "document"
    if start.startswith(_IMAGE_STARTS) or (start.startswith(b"RIFF") and start[8:12] == b"WEBP"):
        return "image"
    if start[4:8] == b"ftyp":
        return "image" if start[8:12] in _IMAGE_BRANDS else "recording"
    if start.startswith(_RECORDING_STARTS) or (start.startswith(b"RIFF") and start[8:12] == b"WAVE"):
        return "recording"
    return None


def _estimate(kind: str | None, size: int, image_tokens: int) -> int | None:
    if kind == "image":
        return image_tokens
    return None if kind is None else 1 + size // _BYTES_PER_TOKEN
