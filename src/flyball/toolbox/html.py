"""Bodies of fetched pages: decompression, charset and HTML to text.

Python's own HTML parser takes quadratic time for hostile pages, and nothing can interrupt it. The reader here is
linear: it looks at each character a fixed number of times. It knows just enough HTML to tell text from markup.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterable
from html import unescape
from typing import NamedTuple

from .text_page import is_binary

_TEXT_TYPES = re.compile(r"text/|application/(?:[\w.-]+\+)?(?:json|xml|yaml|javascript|x-ndjson|toml)$")
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w-]+)", re.IGNORECASE)
_KNOWN_CHARSETS = re.compile(
    r"utf-?(?:8|16|32)(?:-?[bl]e)?|(?:us-)?ascii|latin-?1|iso-?8859-?\d+|(?:windows|cp)-?\d+"
    r"|koi8-?[rtu]|big5|gb2312|gbk|gb18030|shift[_-]jis|euc[_-](?:jp|kr)",
    re.IGNORECASE,
)
"""Charsets of pages. Other codecs of Python may be very slow, or are not text encodings."""


class FetchedBody(NamedTuple):
    """Received body, and whether it is complete."""

    data: bytes
    is_whole: bool


async def read_body(chunks: AsyncIterable[bytes], encoding: str, max_bytes: int) -> FetchedBody:
    """Read and decompress at most `max_bytes` bytes of a body.

    The limit holds for the decompressed data, because a few packed bytes may contain gigabytes.

    Raises:
        ValueError: the body cannot be decompressed.
    """
    unpack = _decompress if encoding.strip().lower() in ("gzip", "x-gzip") else _pass_through
    if unpack is _pass_through and encoding not in ("", "identity"):
        raise ValueError(f"its content encoding is {encoding!r}; expected gzip or none")
    data = bytearray()
    async for piece in unpack(chunks, max_bytes + 1):
        data += piece
        if len(data) > max_bytes:
            return FetchedBody(bytes(data[:max_bytes]), False)
    return FetchedBody(bytes(data), True)


def as_text(body: FetchedBody, content_type: str) -> str | None:
    """Return a body as text, or None for binary data."""
    kind = content_type.partition(";")[0].strip().lower()
    if is_binary(body.data) and "utf-16" not in content_type.lower():
        return None
    is_html = kind in ("text/html", "application/xhtml+xml")
    if kind and not is_html and not _TEXT_TYPES.match(kind):
        return None
    start = body.data[:1024].decode("ascii", "replace") if is_html else ""
    declared = _CHARSET.search(content_type) or _CHARSET.search(start)
    charset = declared[1] if declared and _KNOWN_CHARSETS.fullmatch(declared[1]) else "utf-8"
    text = body.data.decode(charset, "replace")
    return html_to_text(text) if is_html else text


async def _pass_through(chunks: AsyncIterable[bytes], max_bytes: int) -> AsyncGenerator[bytes]:
    async for chunk in chunks:
        yield chunk[:max_bytes]


async def _decompress(chunks: AsyncIterable[bytes], max_bytes: int) -> AsyncGenerator[bytes]:
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        async for chunk in chunks:
            packed = chunk
            while packed:
                yield unpacker.decompress(packed, max_bytes)
                packed = unpacker.unconsumed_tail
    except zlib.error as error:
        raise ValueError(f"it cannot be decompressed: {error}") from None
    if not unpacker.eof:
        raise ValueError("it cannot be decompressed: it is incomplete")


_SKIPPED_TAGS = {"script", "style", "template", "noscript", "svg", "iframe", "object", "textarea"}
_BLOCK_TAGS = re.compile(
    "address|article|aside|blockquote|body|br|caption|d[dlt]|div|fieldset|fig(?:caption|ure)|footer|form|h[1-6r]|head"
    "|header|html|legend|li|main|nav|ol|option|p|pre|section|select|summary|t[drh]|table|t(?:body|foot|head)|title|ul"
)
_TAG_NAME = re.compile(r"/?([a-zA-Z][^\s/>]*)")
_TAG_REST = re.compile(r"""(?:[^"'>]++|"[^"]*+"|'[^']*+')*+>""")
_LINK = re.compile(r"""\shref\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>"']++))""", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});?")


def html_to_text(page: str) -> str:
    """Return the visible text of a page.

    Each block is on its own line, and link targets follow their text. Scripts and styles are dropped.

    >>> page = "<title>Socks</title><p>All <b>warm</b>&amp;<a href='/buy'>cheap</a><script>x('<p>')</script>"
    >>> print(html_to_text(page))
    Socks
    All warm&cheap (/buy)
    """
    return _HtmlReader(page).read()


class _HtmlReader:
    def __init__(self, page: str) -> None:
        self._page = page
        self._lines: list[str] = []
        self._line: list[str] = []
        self._links: list[str] = []
        self._quotes_close = True
        self._verbatim = False

    def read(self) -> str:
        at = 0
        while (start := self._page.find("<", at)) >= 0:
            self._add_text(self._page[at:start])
            at = self._skip_markup(start)
        self._add_text(self._page[at:])
        self._end_line()
        return "\n".join(self._lines)

    def _skip_markup(self, start: int) -> int:
        """Handle the markup at `<` and return the position after it."""
        page = self._page
        if page.startswith("<!--", start):
            return _find_after(page, "-->", start + 4)
        if page.startswith(("<!", "<?"), start):
            return _find_after(page, ">", start)
        named = _TAG_NAME.match(page, start + 1)
        if named is None:
            self._add_text("<")
            return start + 1
        end = self._find_tag_end(named.end())
        name = named[1].lower()
        if name in _SKIPPED_TAGS and page[start + 1] != "/":
            closing = re.compile(rf"</{name}", re.IGNORECASE).search(page, end)
            return len(page) if closing is None else _find_after(page, ">", closing.end())
        self._handle_tag(name, page[start:end], closes=page[start + 1] == "/")
        return end

    def _find_tag_end(self, at: int) -> int:
        # The search for the end of an unclosed quote reads the rest of the page. After the first such search quotes
        # are ignored, so that the time stays linear.
        if self._quotes_close:
            rest = _TAG_REST.match(self._page, at)
            if rest is not None:
                return rest.end()
            self._quotes_close = False
        return _find_after(self._page, ">", at)

    def _handle_tag(self, name: str, tag: str, *, closes: bool) -> None:
        if _BLOCK_TAGS.fullmatch(name):
            self._end_line()
        if name == "pre":
            self._verbatim = not closes
        elif name == "li" and not closes:
            self._line.append("- ")
        elif name == "a" and not closes:
            match = _LINK.search(tag)
            self._links.append("" if match is None else match[1] or match[2] or match[3] or "")
        elif name == "a" and self._links:
            link = _unescape(self._links.pop())
            if link and not link.startswith(("#", "javascript:", "data:")):
                self._line.append(f" ({link})")

    def _add_text(self, text: str) -> None:
        # A newline is a space in HTML, except inside <pre>.
        if not text:
            return
        first, *others = _unescape(text).split("\n") if self._verbatim else (_unescape(text),)
        self._line.append(first)
        for line in others:
            self._end_line()
            self._line.append(line)

    def _end_line(self) -> None:
        line = "".join(self._line)
        line = line.rstrip() if self._verbatim else " ".join(line.split())
        if line not in ("", "-"):
            self._lines.append(line)
        self._line = []


def _unescape(text: str) -> str:
    # The pattern bounds the length of an entity: `unescape` raises ValueError for a number of more than 4300 digits.
    return _ENTITY.sub(lambda entity: unescape(entity[0]), text)


def _find_after(page: str, what: str, at: int) -> int:
    position = page.find(what, at)
    return len(page) if position < 0 else position + len(what)
