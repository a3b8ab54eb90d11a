"""What came from a server, as text: unpacked no further than the cap, decoded, and of HTML what a reader sees."""

from __future__ import annotations

import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterable
from typing import NamedTuple

from .html import text_of
from .text_page import is_binary

_TEXTUAL = re.compile(r"text/|application/(?:[\w.-]+\+)?(?:json|xml|yaml|javascript|x-ndjson|toml)$")
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w-]+)", re.IGNORECASE)
_KNOWN = re.compile(
    r"utf-?(?:8|16|32)(?:-?[bl]e)?|(?:us-)?ascii|latin-?1|iso-?8859-?\d+|(?:windows|cp)-?\d+"
    r"|koi8-?[rtu]|big5|gb2312|gbk|gb18030|shift[_-]jis|euc[_-](?:jp|kr)",
    re.IGNORECASE,
)
"""What pages are written in. Python knows other codecs, and some take very long or are no encodings of text."""


class Body(NamedTuple):
    """What came, as far as it was read."""

    data: bytes
    is_whole: bool


async def read_body(chunks: AsyncIterable[bytes], encoding: str, most: int) -> Body:
    """Read no more than `most` bytes, and unpack no more: a small packet may hold gigabytes.

    ValueError says why it cannot be unpacked.
    """
    unpack = _unpacked if encoding.strip().lower() in ("gzip", "x-gzip") else _as_it_is
    if unpack is _as_it_is and encoding not in ("", "identity"):
        raise ValueError(f"it is packed as {encoding!r}; expected gzip, or not packed")
    data = bytearray()
    async for piece in unpack(chunks, most + 1):
        data += piece
        if len(data) > most:
            return Body(bytes(data[:most]), False)
    return Body(bytes(data), True)


def as_text(body: Body, content_type: str) -> str | None:
    """The text that a body is; None where it is none."""
    kind = content_type.partition(";")[0].strip().lower()
    if is_binary(body.data) and "utf-16" not in content_type.lower():
        return None
    is_html = kind in ("text/html", "application/xhtml+xml")
    if kind and not is_html and not _TEXTUAL.match(kind):
        return None
    start = body.data[:1024].decode("ascii", "replace") if is_html else ""
    found = _CHARSET.search(content_type) or _CHARSET.search(start)
    charset = found[1] if found and _KNOWN.fullmatch(found[1]) else "utf-8"
    text = body.data.decode(charset, "replace")
    return text_of(text) if is_html else text


async def _as_it_is(chunks: AsyncIterable[bytes], most: int) -> AsyncGenerator[bytes]:
    async for chunk in chunks:
        yield chunk[:most]


async def _unpacked(chunks: AsyncIterable[bytes], most: int) -> AsyncGenerator[bytes]:
    """Pieces of at most so many bytes each."""
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        async for chunk in chunks:
            packed = chunk
            while packed:
                yield unpacker.decompress(packed, most)
                packed = unpacker.unconsumed_tail
    except zlib.error as error:
        raise ValueError(f"it cannot be unpacked: {error}") from None
    if not unpacker.eof:
        raise ValueError("it cannot be unpacked: it breaks off")
