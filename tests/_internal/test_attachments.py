import zlib
from base64 import b64encode, encodebytes, urlsafe_b64encode
from dataclasses import dataclass
from random import Random

import pytest

from flyball._internal.attachments import (
    IMAGE_TOKENS,
    PAGE_TOKENS,
    count_pages,
    estimate_base64_tokens,
    estimate_data_tokens,
    take_out_files,
)

NOISE = Random(7).randbytes(60_000)
PNG, WAV = b"\x89PNG\r\n\x1a\n" + NOISE, b"RIFF\x00\x00\x00\x00WAVEfmt " + NOISE
URL = "data:image/png;base64," + b64encode(PNG).decode()


def build_pdf(pages: int, *, packed: bool = False) -> bytes:
    """Return the objects of a document, the pages in a compressed stream of objects if they are packed."""
    found = b"".join(b"<< /Type /Page /Parent 1 0 R /Contents %d 0 R >>\n" % number for number in range(pages))
    if packed:
        data = zlib.compress(found)
        found = b"9 0 obj\n<< /Type /ObjStm /Filter /FlateDecode /Length %d >>\nstream\n%b\nendstream" % (
            len(data),
            data,
        )
    tree = b"1 0 obj\n<< /Type /Pages /Count %d >>\nendobj\n<< /Type /PageLabels >>\n" % pages
    return b"%PDF-1.7\n" + tree + found + b"\nstream\n" + NOISE + b"\nendstream\n%%EOF"


@dataclass
class Binary:
    data: bytes
    media_type: str = "image/png"


@pytest.mark.parametrize(
    "start",
    [b"\x89PNG", b"\xff\xd8\xff\xe0", b"GIF89a", b"RIFF\x00\x00\x00\x00WEBP", b"\x00\x00\x00\x18ftypheic", b"II*\x00"],
)
def test_an_image_counts_as_one_whatever_its_size(start: bytes) -> None:
    for size in (3_000, 60_000):
        assert estimate_data_tokens(start + NOISE[:size]) == IMAGE_TOKENS
        assert estimate_base64_tokens(b64encode(start + NOISE[:size])) == IMAGE_TOKENS
        assert estimate_base64_tokens(urlsafe_b64encode(start + NOISE[:size]).rstrip(b"=")) == IMAGE_TOKENS
        assert estimate_base64_tokens(b64encode(start + NOISE[:size]), 5_000) == 5_000
        assert take_out_files({"data": encodebytes(start + NOISE[:size]).decode()}) == ({"data": ""}, IMAGE_TOKENS)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("pages", [1, 3, 120])
def test_a_pdf_counts_by_its_pages(pages: int, packed: bool) -> None:
    document = build_pdf(pages, packed=packed)
    assert count_pages(document) == pages
    assert estimate_data_tokens(document) == estimate_base64_tokens(b64encode(document)) == pages * PAGE_TOKENS
    assert estimate_base64_tokens(b"data:application/pdf;base64," + b64encode(document)) == pages * PAGE_TOKENS


def test_pages_that_cannot_be_found_are_guessed_from_the_size() -> None:
    broken = b"<< /Type /ObjStm >>\nstream\nno deflated data"
    assert count_pages(b"%PDF-1.7\n" + broken + NOISE[:50_000]) == 6


def test_a_document_that_unpacks_without_end_is_not_unpacked_whole() -> None:
    bomb = zlib.compress(bytes(60_000_000), 9)
    packed = b"<< /Type /ObjStm >>\nstream\n" + bomb + b"\nendstream\n"
    assert count_pages(b"%PDF-1.7\n" + packed * 20) == 1 + (len(packed) * 20 + 9) // 10_000


def test_a_recording_counts_far_less_than_a_text_as_long() -> None:
    assert estimate_data_tokens(WAV) == 1 + len(WAV) // 125
    assert estimate_data_tokens(b"\x00\x00\x00\x18ftypM4A " + NOISE) == 1 + (16 + len(NOISE)) // 125


@pytest.mark.parametrize("data", [NOISE, b"PK\x03\x04" + NOISE, b"Name,Price\n" * 500, b""])
def test_what_is_no_known_kind_of_file_is_none(data: bytes) -> None:
    assert estimate_data_tokens(data) is None
    assert estimate_base64_tokens(b64encode(data)) is None


def test_files_are_taken_out_of_a_part_wherever_they_are() -> None:
    pdf = b64encode(build_pdf(2)).decode()
    source = {"type": "base64", "media_type": "application/pdf", "data": pdf}
    part = {
        "type": "document",
        "source": source,
        "more": [{"image_url": {"url": URL}}, Binary(PNG), PNG],
        "title": "Report",
    }
    rest, tokens = take_out_files(part)
    assert tokens == 2 * PAGE_TOKENS + 3 * IMAGE_TOKENS
    assert rest == {
        "type": "document",
        "source": {**source, "data": ""},
        "more": [{"image_url": {"url": ""}}, "", ""],
        "title": "Report",
    }
    assert source["data"] == pdf


@pytest.mark.parametrize(
    "part",
    [
        {"text": URL},
        {"content": [URL]},
        {"arguments": URL},
        {"data": "not base64, but long " * 200},
        {"data": b64encode(NOISE).decode()},
        {"url": "https://example.com/" + "a" * 5_000},
        {"data": "ä" * 5_000},
        URL[:1_000],
    ],
)
def test_what_the_model_reads_as_a_text_stays(part: object) -> None:
    assert take_out_files(part) == (part, 0)


def test_a_value_that_contains_itself_is_left() -> None:
    endless: dict[str, object] = {}
    endless["self"] = endless
    assert take_out_files(endless)[1] == 0
