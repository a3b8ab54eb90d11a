"""`flyball models`: those that are known, with and without a price, and the local one."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flyball.errors import ConfigError
from flyball.models import by_name

Typed = Callable[..., subprocess.CompletedProcess[str]]


def listed(typed: Typed, *words: str, **environment: str) -> dict[str, dict[str, Any]]:
    done = typed("models", "--json", *words, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    return {one["name"]: one for one in json.loads(done.stdout)}


def test_models_are_listed_with_their_price_and_whether_the_key_is_there(typed: Typed, key: str) -> None:
    done = typed("models", "gpt-5", "MINI")
    assert (done.returncode, done.stderr) == (0, "")
    [line] = [line for line in done.stdout.splitlines() if line.startswith("openai:gpt-5-mini ")]
    assert {"openai:gpt-5-mini", "$0.25", "$2", "400,000", "OPENAI_API_KEY"} <= set(line.split())
    headers, *lines = done.stdout.splitlines()
    assert headers.split()[0] == "model"
    assert all("gpt-5" in line and "mini" in line for line in lines)
    ready = listed(typed, "openai:gpt-5-mini", OPENAI_API_KEY=key)["openai:gpt-5-mini"]
    assert ready == {
        "name": "openai:gpt-5-mini", "input": 0.25, "output": 2.0, "context_tokens": 400_000, "ready": "ready",
    }  # fmt: skip


def test_models_of_gemini_and_of_the_responses_api_are_listed_under_the_names_that_work(typed: Typed, key: str) -> None:
    found = listed(typed, GOOGLE_API_KEY=key)
    assert found["google:gemini-2.5-flash"]["ready"] == "ready"
    assert not [name for name in found if name.startswith("google:") and "gem" not in name]
    chat, responses = found["openai:gpt-5-mini"], found["openai-responses:gpt-5-mini"]
    assert chat | {"name": responses["name"]} == responses
    assert "openai-responses:gpt-3.5-turbo" not in found
    assert {"openai-responses:gpt-5-pro", "openai-responses:o3-deep-research"} <= {*found}
    assert "openai:gpt-5-pro" not in found
    assert [name for name in found if re.search("whisper|embedding|transcribe|davinci", name)] == []
    assert listed(typed, "google:gemini-2.5-flash")["google:gemini-2.5-flash"]["ready"] == "no GEMINI_API_KEY"


def test_all_kinds_are_there_priced_unpriced_and_local(typed: Typed) -> None:
    found = listed(typed)
    assert {name.partition(":")[0] for name in found} == {"openai", "openai-responses", "anthropic", "google", "local"}
    assert found["local:smollm2"]["input"] == 0
    unpriced = [name for name, one in found.items() if one["input"] is None]
    assert unpriced
    assert "$" not in typed("models", unpriced[0]).stdout


def test_a_version_without_a_local_model_lists_the_others(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    def named(name: str) -> Any:
        raise ConfigError("model", name, "another")

    monkeypatch.setattr(by_name, "named", named)
    assert "local:smollm2" not in listed(typed)


def test_prices_of_the_settings_count_and_their_models_are_known_too(typed: Typed, tmp_path: Path) -> None:
    text = '[prices."acme:one"]\ninput = 1\noutput = 2.5\n[prices."openai:gpt-5-mini"]\ninput = 7\noutput = 8\n'
    (tmp_path / "flyball.toml").write_text(text)
    found = listed(typed)
    assert (found["acme:one"]["input"], found["acme:one"]["output"]) == (1, 2.5)
    assert (found["openai:gpt-5-mini"]["input"], found["openai:gpt-5"]["input"]) == (7, 1.25)
    (tmp_path / "flyball.toml").write_text('[prices."acme:one"]\ninput = 1\n')
    wrong = typed("models")
    assert (wrong.returncode, wrong.stdout, len(wrong.stderr.splitlines())) == (2, "", 1)
    assert 'prices."acme:one" (flyball.toml:1)' in wrong.stderr


def test_words_that_no_model_has_are_told(typed: Typed) -> None:
    none = typed("models", "no-such-model")
    assert (none.returncode, none.stdout) == (1, "")
    assert none.stderr.count("\n") == 1
    assert typed("models", "no-such-model", "--json").stdout == "[]\n"
