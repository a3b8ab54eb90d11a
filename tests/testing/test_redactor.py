from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball import ConfigError
from flyball.testing.cassette import Redactor

LOOKS = [
    "sk-proj-abc123XYZ789-abcdef",
    "sk-ant-api03-AbCdEf0123456789",
    "rk_live_0123456789abcdef",
    "ghp_0123456789abcdefABCDEF",
    "github_pat_0123456789abcdefABCDEF",
    "xoxb-0123456789-abcdefghij",
    "AKIA0123456789ABCDEF",
    "AIzaSyA0123456789abcdefghijklmnopqrstu",
    "Bearer abcdefgh.ijklmnop.qrst==",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----",
]
WORDS = [
    "the key-value store, an api_version and a key_point_of_the_matter",
    "sk-learn, task-oriented, risk-adjusted-for-2026-and-later",
    "the bearer of this letter, bearer tokens",
    "call-0 call_1 toolu_01A09q90qw90lq917835lq9 chatcmpl-123",
]


class TestText:
    @pytest.mark.parametrize("key", LOOKS)
    def test_what_looks_like_a_key_is_hidden(self, key: str) -> None:
        assert Redactor().redact_text(f"It is {key}, I said.") == "It is ***, I said."

    @pytest.mark.parametrize("text", WORDS)
    def test_plain_words_are_not_redacted(self, text: str) -> None:
        assert Redactor().redact_text(text) == text

    def test_a_secret_is_hidden_wherever_it_stands(self) -> None:
        censor = Redactor(["sword", 'fish"er', "swordfish"])
        assert censor.redact_text('aswordfishb {"k": "fish\\"er"} sword') == 'a***b {"k": "***"} sword'

    @given(st.text(alphabet="sk-_Bearer 0123456789AKIAeyJ.*", max_size=80), st.lists(st.text(min_size=6), max_size=2))
    def test_twice_comes_to_the_same(self, text: str, secrets: list[str]) -> None:
        censor = Redactor(secrets)
        once = censor.redact_text(text)
        assert censor.redact_text(once) == once


class TestClean:
    def test_every_text_in_a_value_is_without_secrets(self) -> None:
        value: Any = {"swordfish": [("a swordfish", 1), None], "b": {"c": True}}
        assert Redactor(["swordfish"]).redact(value) == {"***": [["a ***", 1], None], "b": {"c": True}}


class TestPieces:
    def test_a_secret_that_goes_over_several_pieces_is_hidden(self) -> None:
        assert Redactor(["swordfish"]).redact_pieces(["My swo", "rdfi", "sh!"]) == ["My ***!"]

    def test_pieces_stay_where_they_can(self) -> None:
        censor = Redactor(["swordfish"])
        assert censor.redact_pieces(["My ", "swordfish", "!"]) == ["My ", "***", "!"]
        assert censor.redact_pieces(["ri", "sk-a1b2c3d4e5f6g7h8"]) == ["ri", "sk-a1b2c3d4e5f6g7h8"]


class TestOf:
    def test_a_model_tells_its_secrets_if_it_has_some(self) -> None:
        class Knows:
            def secrets(self) -> tuple[str, ...]:
                return ("swordfish",)

        assert Redactor.for_model(Knows()).redact_text("swordfish") == "***"
        assert Redactor.for_model(object()).redact_text("swordfish") == "swordfish"

    def test_a_model_whose_secrets_are_no_list_is_refused(self) -> None:
        class Wrong:
            def secrets(self) -> str:
                return "swordfish"

        with pytest.raises(ConfigError, match=r"secrets\(\)") as caught:
            Redactor.for_model(Wrong())
        assert caught.value.code == "usage_error"


@pytest.mark.parametrize("before", ["", "x-", "a.", "sk-", "eyJ-", "x_y-", "sk-a-eyJ-"])
def test_a_key_in_the_middle_of_a_word_is_hidden_and_what_is_before_it_stays(before: str) -> None:
    token = f"eyJ{'a' * 12}.{'b' * 12}.c"
    for key in ("sk-abcdefgh12345678", token):
        cleaned = Redactor().redact_text(f"It is {before}{key}, I said.")
        assert key[4:] not in cleaned
        assert cleaned.startswith(f"It is {before.partition('sk-')[0].partition('eyJ')[0]}")
        assert cleaned.endswith(", I said.")
