"""The distribution `flyball-ai`: its name, its readme, and the links in it."""

import json
import re
import shutil
import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

import flyball
from flyball._internal.distribution import DISTRIBUTION

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)]+)\)")
OWN_LINK = re.compile(r"(?<!\w)pip install '(?:flyball)\[")
ADDRESS = "https://example.org/ours/flyball"


def read_metadata(folder: Path, repository: str) -> dict[str, Any]:
    """Return the metadata that a build with this address would publish."""
    for name in ("README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    (folder / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "readme_hook.py", folder / "tools")
    project = (ROOT / "pyproject.toml").read_text()
    assert project.count('repository = ""') == 1, "the address is set in one place"
    (folder / "pyproject.toml").write_text(project.replace('repository = ""', f'repository = "{repository}"'))
    command = [sys.executable, "-m", "hatchling", "metadata"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def test_the_package_is_installed_under_the_name_of_the_distribution() -> None:
    assert DISTRIBUTION == "flyball-ai"
    assert flyball.__version__ == version(DISTRIBUTION)
    [script] = entry_points(group="console_scripts", name="flyball")
    assert script.dist is not None
    assert script.dist.name == DISTRIBUTION


def test_the_readme_of_the_distribution_has_absolute_links_from_one_setting(tmp_path: Path) -> None:
    metadata = read_metadata(tmp_path, f"{ADDRESS}/")
    links = LINK.findall(metadata["readme"]["text"])
    targets = [link.removeprefix(f"{ADDRESS}/blob/main/") for link in links]
    assert len(targets) == len(LINK.findall((ROOT / "README.md").read_text())) > 20
    assert [target for target in targets if not (ROOT / target).exists()] == []
    assert metadata["urls"]["Source"] == ADDRESS


def test_without_an_address_the_distribution_has_no_link_and_the_same_text(tmp_path: Path) -> None:
    metadata = read_metadata(tmp_path, "")
    text = metadata["readme"]["text"]
    assert LINK.findall(text) == []
    assert re.sub(r"\[((?:[^\[\]`]|`[^`]*`)+)\]\([^()\s]+\)", r"\1", (ROOT / "README.md").read_text()) == text
    assert not metadata.get("urls")


def test_every_text_that_names_an_extra_names_the_distribution() -> None:
    files = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py"), *ROOT.glob("examples/*.py")]
    assert [str(path) for path in files if OWN_LINK.search(path.read_text())] == []


def test_an_earlier_set_up_under_the_name_flyball_is_built_again(tmp_path: Path) -> None:
    """The recipe of the first stamp is printed, and the old folder is gone, before anything is installed."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("pyproject.toml", "requirements.lock"):
        (tmp_path / name).touch()
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (python.parent / "uv").symlink_to("/bin/true")
    packages = tmp_path / ".venv" / "lib" / "python3.11" / "site-packages"
    current, earlier = packages / "flyball_ai-0.1.0.dist-info", packages / "flyball-0.1.0.dist-info"
    for info, is_kept in ((current, True), (earlier, False)):
        info.mkdir(parents=True)
        subprocess.run(["make", "-n", "demo"], cwd=tmp_path, capture_output=True, timeout=60, check=True)
        assert (tmp_path / ".venv").exists() == is_kept
