"""Request bodies: read up to a limit, and decoded whatever their encoding."""

from __future__ import annotations

import json
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, cast

from .._internal.json_bytes import parse_json

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Json = dict[str, Any]

MAX_BODY_BYTES = 64 * 2**20
"""Maximum bytes of a request, before and after decoding."""
_MAX_MEMBERS = 100
"""Parts of a gzip body. Each one copies the rest, so a body of empty parts would block the gateway for hours."""
_GZIP_OR_ZLIB = 47
_RAW_DEFLATE = -15


class Refused(Exception):
    """Request that is answered by the gateway with an error and never forwarded."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(status, code, message)
        self.status = status
        self.code = code
        self.message = message


class ClientLeft(Exception):
    """Raised when the client disconnects before its request is complete."""


async def read_body(receive: Receive) -> bytes:
    """Return the whole body of a request as it was sent."""
    chunks: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise _too_large()
        chunks.append(chunk)
        more = message.get("more_body", False)
    return b"".join(chunks)


def decode_body(raw: bytes, encoding: str) -> bytes:
    """Return a body without its content encoding.

    >>> decode_body(b"{}", "identity")
    b'{}'
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return raw
    decode = _DECODERS.get(name)
    if decode is None:
        raise Refused(
            415, "encoding_unknown", f"the content encoding {name!r} is not supported: use gzip, deflate, br or zstd"
        )
    try:
        body = decode(raw)
    except Refused:
        raise
    except Exception as error:  # each library has its own errors
        raise Refused(400, "body_undecodable", f"the body is not valid {name}: {error}") from None
    return body


def parse_body(body: bytes) -> Json:
    """Return a JSON object, or refuse the request: what cannot be read cannot be limited."""
    try:
        value = parse_json(body)
    except (ValueError, RecursionError):
        raise Refused(400, "body_invalid", "the body is not valid JSON, so the gateway does not forward it") from None
    if not isinstance(value, dict):
        raise Refused(400, "body_invalid", "the body is not a JSON object, so the gateway does not forward it")
    return cast("Json", value)


def encode_json(body: object) -> bytes:
    """Encode JSON. Texts with a lone surrogate, which have no bytes in UTF-8, are written with escapes.

    >>> print(encode_json({"half": "\\ud83d"}).decode())
    {"half":"\\ud83d"}
    """
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(body, separators=(",", ":")).encode()


def _inflate(raw: bytes, window: int) -> bytes:
    parts: list[bytes] = []
    room, rest = MAX_BODY_BYTES, raw
    while rest:  # gzip may have several members
        if len(parts) == _MAX_MEMBERS:
            raise ValueError(f"it has more than {_MAX_MEMBERS} parts")
        decoder = zlib.decompressobj(window)
        part = decoder.decompress(rest, room + 1)
        room -= len(part)
        if room < 0:
            raise _too_large()
        if not decoder.eof:
            raise ValueError("it is not complete")
        parts.append(part)
        rest = decoder.unused_data
    return b"".join(parts)


def _decode_gzip(raw: bytes) -> bytes:
    return _inflate(raw, _GZIP_OR_ZLIB)


def _decode_deflate(raw: bytes) -> bytes:
    """Decode zlib data, or raw deflate data, which some clients send under the same name."""
    try:
        return _inflate(raw, _GZIP_OR_ZLIB)
    except zlib.error:
        return _inflate(raw, _RAW_DEFLATE)


def _decode_brotli(raw: bytes) -> bytes:
    import brotli  # pyright: ignore[reportMissingTypeStubs]

    decoder: Any = cast("Any", brotli).Decompressor()
    body: bytes = decoder.process(raw, output_buffer_limit=MAX_BODY_BYTES + 1)
    if len(body) > MAX_BODY_BYTES or not decoder.can_accept_more_data():
        raise _too_large()
    if not decoder.is_finished():
        raise ValueError("it is not complete")
    return body


def _decode_zstd(raw: bytes) -> bytes:
    import zstandard

    parts: list[bytes] = []
    room = MAX_BODY_BYTES
    with zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(raw, read_across_frames=True) as reader:
        while part := reader.read(min(room + 1, 2**20)):
            room -= len(part)
            if room < 0:
                raise _too_large()
            parts.append(part)
    body = b"".join(parts)
    if not body:
        raise ValueError("it is not complete")
    return body


def _too_large() -> Refused:
    return Refused(413, "body_too_large", f"the body has more than {MAX_BODY_BYTES:,} bytes")


_DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": _decode_gzip,
    "x-gzip": _decode_gzip,
    "deflate": _decode_deflate,
    "br": _decode_brotli,
    "zstd": _decode_zstd,
}
