import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball import ConfigError
from flyball._internal.text import redact
from flyball.models.endpoint import Key, redact_url


def test_a_given_key_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "from-environment")
    assert Key("given-key", "SOME_KEY").reveal() == "given-key"
    assert Key(None, "SOME_KEY").reveal() == "from-environment"


def test_the_environment_is_read_when_the_key_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    key = Key(None, "SOME_KEY")
    assert key.reveal() is None
    monkeypatch.setenv("SOME_KEY", " set-later\n")
    assert key.reveal() == "set-later"


def test_a_key_is_never_shown(key: str) -> None:
    hidden = Key(key, "SOME_KEY")
    assert f"{hidden} {hidden!r} {[hidden]}" == "*** *** [***]"
    assert key not in str(vars(type(hidden)))


def test_a_key_cannot_be_pickled(key: str) -> None:
    with pytest.raises(TypeError, match="key"):
        pickle.dumps(Key(key))


@pytest.mark.parametrize("wrong", ["two words", "line\nbreak", "umläut", "tab\tin"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(wrong: str) -> None:
    with pytest.raises(ConfigError, match="ASCII") as caught:
        Key(wrong).reveal()
    assert wrong not in str(caught.value)
    frame = caught.traceback[-1].frame
    assert frame.code.name == "reveal"
    assert wrong not in [*map(str, frame.f_locals.values())]


def test_the_variable_of_a_key_that_no_header_can_carry_is_named(
    monkeypatch: pytest.MonkeyPatch, snapshot: Callable[..., None]
) -> None:
    monkeypatch.setenv("SOME_KEY", "two words")
    with pytest.raises(ConfigError) as caught:
        Key(None, "SOME_KEY").reveal()
    assert "SOME_KEY" in str(caught.value)
    assert "two words" not in str(caught.value)
    snapshot(caught.value)


@pytest.mark.parametrize("wrong", ["", "  ", 7])
def test_a_key_that_is_empty_or_no_text_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Key(wrong)
    assert caught.value.code == "usage_error"


def test_all_secrets_leave_a_text_also_where_one_is_part_of_another() -> None:
    assert redact("secret-longer ab secret", ["secret", "secret-longer", "ab"]) == "*** ab ***"


@given(st.text("a:/@?#", max_size=12))
def test_a_url_is_shown_without_user_and_query(rest: str) -> None:
    url = f"http{rest}"
    assert redact_url(url) == re.sub(r"\?[^#]*", "?***", re.sub(r"(?<=://)[^?#]*@", "***@", url))
