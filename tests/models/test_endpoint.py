from typing import Any

import pytest

from flyball import Agent, ConfigError
from flyball.models import OpenAIModel

PASSWORD = "opensesame"


@pytest.mark.parametrize(
    "url",
    ["http://host:port/v1", "http://host:99999/v1", "http://[::1/v1", "http://two words/v1", "ftp://host/v1", "", 7],
)
def test_a_url_that_leads_nowhere_is_refused_at_once(url: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAIModel("m", url=url)
    assert (caught.value.where, caught.value.found) == ("model, url", url)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8080", "http://127.0.0.1:8080/", "http://[::1]:8080/v1", "http://h/v1/"]
)
def test_a_url_is_taken_with_or_without_a_slash_at_its_end(url: str) -> None:
    assert f" {url.rstrip('/')}>" in repr(OpenAIModel("m", url=url))


@pytest.mark.parametrize(
    "reference",
    [
        f"http://me:{PASSWORD}@host/v1",
        f"http://me:{PASSWORD}@host/v1#m",
        f"http://me:a/{PASSWORD}@host/v1#m",
        f"https://host/v1?key={PASSWORD}",
        f"https://host/v1?key={PASSWORD}#m",
        f"htps://me:{PASSWORD}@host/v1#m",
    ],
)
def test_a_password_or_a_key_in_a_url_is_refused_and_not_shown(reference: str) -> None:
    with pytest.raises(ConfigError, match="host/v1") as caught:
        Agent(model=reference)
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    "headers", [{"x team": "a"}, {"x:team": "a"}, {"": "a"}, {"x-team": "two\nlines"}, {"x-team": 7}, 7]
)
def test_a_header_that_cannot_be_sent_is_refused_at_once(headers: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAIModel("m", headers=headers)
    assert "header" in str(caught.value)
