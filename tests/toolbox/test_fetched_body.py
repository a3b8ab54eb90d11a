import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator

import anyio
import pytest

from flyball.toolbox.html import FetchedBody, as_text, read_body


def read(packed: bytes, encoding: str = "", most: int = 1_000, step: int = 65_536) -> FetchedBody:
    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(packed), step):
            yield packed[start : start + step]

    async def main() -> FetchedBody:
        return await read_body(chunks(), encoding, most)

    return anyio.run(main)


@pytest.mark.parametrize("step", [1, 7, 65_536])
def test_a_body_is_read_up_to_its_cap_packed_or_not(step: int) -> None:
    for size, is_whole in ((0, True), (999, True), (1_000, True), (1_001, False), (5_000, False)):
        data = bytes(number % 251 for number in range(size))
        for found in (read(data, step=step), read(gzip.compress(data), "gzip", step=step)):
            assert found == FetchedBody(data[:1_000], is_whole)


def test_a_bomb_is_never_unpacked() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(bytes(2**20)) for _ in range(64)) + packer.flush()
    assert len(bomb) < 100_000
    tracemalloc.start()
    try:
        assert read(bomb, "gzip").is_whole is False
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("packed", "encoding", "words"),
    [
        (b"no gzip", "gzip", "decompressed"),
        (gzip.compress(b"x" * 100, mtime=0)[:-9], "gzip", "decompressed"),
        (b"x", "br", "'br'.*gzip"),
        (b"x", "gzip, gzip", "gzip"),
    ],
)
def test_what_cannot_be_unpacked_is_told(packed: bytes, encoding: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read(packed, encoding)


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (b"<p>caf\xc3\xa9</p>", "text/html", "café"),
        (b"<p>caf\xe9</p>", "text/html; charset=ISO-8859-1", "café"),
        (b"<meta charset='windows-1252'><p>\x80</p>", "text/html", "€"),
        (b"<p>x</p>", "text/plain", "<p>x</p>"),
        (b'{"a": 1}', "application/json", '{"a": 1}'),
        (b"<a/>", "application/atom+xml; charset=utf-8", "<a/>"),
        (b"plain", "", "plain"),
        (b"caf\xe9", "text/plain; charset=unicode_escape", "caf\ufffd"),
        (b"caf\xe9", "text/plain; charset=nonsense", "caf\ufffd"),
        (b"\x89PNG\0", "image/png", None),
        (b"PDF", "application/pdf", None),
        (b"a\0b", "text/plain", None),
        (b"a\0b", "", None),
    ],
)
def test_text_is_decoded_and_what_is_none_is_not(data: bytes, kind: str, text: str | None) -> None:
    assert as_text(FetchedBody(data, True), kind) == text
