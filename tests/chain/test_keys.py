"""Keys: found in settings, shown to nobody."""

import pickle
from typing import Any

import pytest

from flyball import ConfigError, SettingError, Settings
from flyball.chain import Chain, Keys

SECRET = "very secret, and long enough"


def test_everybody_with_the_same_key_has_the_same_name_for_it() -> None:
    assert Keys(SECRET).id == Keys(SECRET.encode(), "another one, long enough").id != Keys(SECRET + "!").id


def test_neither_key_is_in_what_is_shown_of_them_or_of_a_chain() -> None:
    keys = Keys(SECRET, "the one before, long enough")
    shown = f"{keys!r} {keys} {Chain(name='a', host='', keys=keys, settings={})!r}"
    assert keys.id in shown
    assert SECRET not in shown
    assert "the one before" not in shown


def test_keys_cannot_be_pickled() -> None:
    with pytest.raises(TypeError, match="key"):
        pickle.dumps(Keys(SECRET))


@pytest.mark.parametrize("given", ["", "short", b"short", 5, None, ["a list"]])
def test_a_text_that_is_no_key_is_refused_without_being_quoted(given: Any) -> None:
    with pytest.raises(ConfigError, match="16") as refused:
        Keys(given)
    assert "short" not in str(refused.value)
    with pytest.raises(ConfigError, match="previous key"):
        Keys(SECRET, "short")


def test_keys_come_from_the_settings() -> None:
    environ = {"FLYBALL_CHAIN__KEY": SECRET, "FLYBALL_CHAIN__PREVIOUS_KEY": "the one before, long enough"}
    chain = Chain(name="a", settings=Settings.load(environ=environ))
    assert repr(chain.keys) == repr(Keys(SECRET, "the one before, long enough"))
    assert chain.require_signature


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"chain.key": "too short"}, "16"),
        ({"chain.key": 1234567890123456}, "16"),
        ({"chain.key": SECRET, "chain.previous_key": "too short"}, "chain.previous_key"),
        ({"chain.previous_key": SECRET}, "chain.key"),
    ],
)
def test_a_wrong_setting_is_told_without_the_secret(settings: dict[str, object], words: str) -> None:
    with pytest.raises(SettingError, match=words) as refused:
        Chain(name="a", settings=settings)
    assert not any(secret in str(refused.value) for secret in ("too short", "1234567890123456", SECRET))
