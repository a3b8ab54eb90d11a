import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from flyball import ModelError
from flyball.errors import ContextTooLong, Retryable
from flyball.models.failures import Filtered, error_from_response, error_from_stream, parse_error_body


def error(status: int, body: bytes = b"", **headers: str) -> ModelError:
    return error_from_response("host", status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_what_may_pass_may_be_asked_again(status: int) -> None:
    assert type(error(status)) is Retryable


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 410, 422, 451])
def test_what_is_wrong_stays_wrong(status: int) -> None:
    assert type(error(status, b'{"error": {"message": "no"}}')) is ModelError


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
        "the request exceeds the available context size (4096 tokens), try increasing it",
        "Please reduce the length of the messages or completion.",
        "Your input exceeds the context window of this model.",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 4000 and 200",
    ],
)
def test_a_conversation_that_is_too_long_is_known_by_its_words(words: str) -> None:
    body = f'{{"error": {{"message": "{words}", "type": "invalid_request_error"}}}}'.encode()
    assert type(error(400, body)) is ContextTooLong
    assert words in str(error(400, body))


def test_a_conversation_that_is_too_long_is_known_by_its_code_or_status() -> None:
    assert type(error(400, b'{"error": {"message": "no", "code": "context_length_exceeded"}}')) is ContextTooLong
    assert type(error(413, b"<h1>Too Large</h1>")) is ContextTooLong


def test_a_refusal_of_too_many_output_tokens_is_not_taken_for_a_long_context() -> None:
    body = b'{"error": {"message": "max_tokens: 9000 > 4096, which is the maximum allowed number of output tokens"}}'
    assert type(error(400, body)) is ModelError


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "0.5"}, 0.5),
        ({"retry_after_ms": "1500", "retry_after": "9"}, 1.5),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "-3"}, None),
        ({"retry_after": "nan"}, None),
        ({}, None),
    ],
)
def test_the_provider_says_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    found = error(429, b"", **headers)
    assert isinstance(found, Retryable)
    assert found.after == seconds


def test_the_provider_says_as_a_date_how_long_to_wait() -> None:
    soon = error(503, retry_after=format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True))
    past = error(503, retry_after="Wed, 21 Oct 2015 07:28:00 GMT")
    assert isinstance(soon, Retryable)
    assert isinstance(past, Retryable)
    assert soon.after is not None
    assert 3_000 < soon.after <= 3_600
    assert past.after == 0.0


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (b'{"error": {"message": "Bad key", "type": "auth", "code": "invalid_api_key"}}', "invalid_api_key", "Bad key"),
        (b'{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}', "overloaded_error", ""),
        (b'{"error": "model not found"}', "", "model not found"),
        (b'{"detail": "Not Found"}', "", "Not Found"),
        (b'{"object": "error", "message": "unknown", "code": 40}', "", "unknown"),
        (b'[{"error": {"message": "quota", "status": "EXHAUSTED"}}]', "EXHAUSTED", "quota"),
        (b"<html><body><h1>502 Bad Gateway</h1></body></html>", "", "502 Bad Gateway"),
        (b"\xff\xfe", "", ""),
        (b"", "", ""),
        (b"[]", "", "[]"),
        (b"[" * 5_000, "", "["),
    ],
)
def test_words_are_found_in_every_shape(body: bytes, kind: str, words: str) -> None:
    found_kind, found = parse_error_body(body)
    assert found_kind == kind
    assert words in found
    assert len(found) <= 501


def test_a_page_in_place_of_an_error_is_cut() -> None:
    assert len(str(error(500, b"word " * 10_000))) < 600


def test_a_redirect_is_not_followed_with_a_key(snapshot: Callable[..., None]) -> None:
    told = error(307, location="http://evil.example")
    assert type(told) is ModelError
    snapshot(told)


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, Retryable),
        ({"message": "upstream died", "code": 502}, Retryable),
        ({}, Retryable),
        ({"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}, ContextTooLong),
        ({"type": "invalid_request_error", "message": "no such tool"}, ModelError),
        ({"message": "quota is spent", "code": 402}, ModelError),
    ],
)
def test_an_error_in_a_stream_is_read_too(told: dict[str, Any], kind: type[ModelError]) -> None:
    assert type(error_from_stream("host", told)) is kind


@pytest.mark.parametrize("shift", range(0, 24, 2))
def test_a_secret_at_the_end_of_what_is_read_is_not_shown_in_part(shift: int) -> None:
    page = "<>" * ((1_000_000 - shift) // 2) + "sk-123456789" + " more" * 10
    assert "sk-" not in parse_error_body(page.encode(), ("sk-123456789",))[1]


@pytest.mark.parametrize(
    ("fields", "is_filtered"),
    [
        ({"code": "content_filter", "message": "The response was filtered."}, True),
        ({"code": "content_policy_violation", "message": "No."}, True),
        ({"code": "misalignment_policy_violation", "message": "No."}, True),
        ({"type": "invalid_request_error", "message": "Output blocked by content filtering policy"}, True),
        ({"message": "... due to the prompt triggering Azure OpenAI's content management policy."}, True),
        ({"code": "invalid_api_key", "message": "See our policy."}, False),
        ({"code": "policy_not_found", "message": "No such policy."}, False),
        ({"code": "rate_limit_exceeded", "message": "No."}, False),
    ],
)
def test_a_block_by_the_filter_is_known_by_its_code_or_its_words(fields: dict[str, str], is_filtered: bool) -> None:
    found = error(400, json.dumps({"error": fields}).encode()), error_from_stream("host", fields)
    assert [type(one) is Filtered for one in found] == [is_filtered, is_filtered]
    assert type(error(500, json.dumps({"error": fields}).encode())) is Retryable
