import subprocess
import sys
from pathlib import Path

import pytest

from flyball.errors import ConfigError, UnknownTool
from flyball.toolbox import NAMES, by_name


def test_a_name_gives_its_tools() -> None:
    assert NAMES == ("files", "write", "python", "shell", "fetch")
    assert [tool.name for tool in by_name("files, write,python,shell,fetch")] == [
        "list_files", "read_file", "search_files", "write_file", "edit_file", "python", "shell", "fetch",
    ]  # fmt: skip
    assert [tool.name for tool in by_name(["shell", "fetch:10.0.0.0/8"])] == ["shell", "fetch"]
    assert by_name([]) == []


def test_behind_the_colon_is_a_folder_or_an_address(tmp_path: Path) -> None:
    for name in ("files", "write", "python", "shell"):
        assert by_name(f"{name}:{tmp_path}")
        with pytest.raises(ConfigError, match=f"{name}, (root|cwd).*nowhere"):
            by_name(f"{name}:{tmp_path}/nowhere")
    assert by_name("fetch:::1")
    with pytest.raises(ConfigError) as caught:
        by_name("fetch:localhost")
    assert (caught.value.where, caught.value.found) == ("fetch, allow", "localhost")


def test_only_programs_are_approved_and_only_unless_told_otherwise() -> None:
    everything = ",".join(NAMES)
    assert [tool.name for tool in by_name(everything) if tool.may_need_approval] == ["python", "shell"]
    assert [tool.name for tool in by_name(everything, approve=False) if tool.may_need_approval] == []


@pytest.mark.parametrize(
    ("names", "words"),
    [("fils", "files"), ("files,shel:x", "shell"), ("", "fetch")],
)
def test_a_name_that_nobody_knows_is_told_with_the_nearest(names: str, words: str) -> None:
    with pytest.raises(UnknownTool) as caught:
        by_name(names)
    assert words in str(caught.value)


def test_a_name_twice_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="files"):
        by_name("files,files:/")


def test_the_web_client_is_loaded_when_a_page_is_fetched() -> None:
    program = "import sys, flyball.toolbox; flyball.toolbox.fetch(); print('httpx2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
