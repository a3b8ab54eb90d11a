import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball import ConfigError, SettingError, Settings, TomlError


def write(folder: Path, text: str, name: str = "flyball.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def found(settings: Settings, key: str) -> tuple[object, str] | None:
    """The value of a key, and the last word of its source: the variable, or the file and line."""
    setting = settings.find(key)
    return None if setting is None else (setting.value, setting.source.split()[-1])


def test_the_environment_goes_before_the_file(tmp_path: Path) -> None:
    write(tmp_path, "max_turns = 30\nmax_retries = 4\n")
    settings = Settings.load(tmp_path, {"FLYBALL_MAX_TURNS": "40", "PATH": "/bin"})
    assert found(settings, "max_turns") == ("40", "FLYBALL_MAX_TURNS")
    assert found(settings, "max_retries") == (4, "flyball.toml:2")
    assert found(settings, "max_nudges") is None


def test_nested_keys_are_tables_in_the_file_and_double_underscores_in_the_environment(tmp_path: Path) -> None:
    write(tmp_path, "[delegation]\nmax_iterations = 7\nmax_depth = 1\n")
    settings = Settings.load(tmp_path, {"FLYBALL_DELEGATION__MAX_ITERATIONS": "9"})
    assert found(settings, "delegation.max_iterations") == (
        "9",
        "FLYBALL_DELEGATION__MAX_ITERATIONS",
    )
    assert found(settings, "delegation.max_depth") == (1, "flyball.toml:3")


def test_a_place_in_the_tables_is_found_though_its_names_have_dots(tmp_path: Path) -> None:
    write(tmp_path, 'max_turns = 3\n[prices."gpt-5.5"]\ninput = 2\n')
    settings = Settings.load(tmp_path, {"FLYBALL_PRICES": "7"})
    one = settings.at("prices", "gpt-5.5", "input")
    assert one is not None
    assert (one.key, one.value, one.source) == ('prices."gpt-5.5".input', 2, "flyball.toml:3")
    assert settings.at("prices", "gpt-5", "5", "input") is settings.at("prices", "other") is None
    with pytest.raises(SettingError) as caught:
        settings.at("max_turns", "below")
    assert (caught.value.where, caught.value.source, caught.value.found) == ("max_turns", "flyball.toml:1", 3)
    assert {setting.key for setting in settings} >= {'prices."gpt-5.5".input'}
    in_code = Settings({"prices": {"gpt-5.5": {"input": 2}}}).at("prices", "gpt-5.5", "input")
    assert in_code is not None
    assert in_code.source.endswith("code")


def test_the_nearest_file_upwards_is_read_and_named_by_its_path(tmp_path: Path) -> None:
    path = write(tmp_path, "\nmax_turns = 30\n")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert found(Settings.load(below, {}), "max_turns") == (30, f"{path}:2")
    write(tmp_path / "a", "max_turns = 31\n")
    assert found(Settings.load(below, {}), "max_turns") == (31, f"{tmp_path / 'a' / 'flyball.toml'}:1")


def test_our_table_in_a_pyproject_counts_and_one_without_it_does_not(tmp_path: Path) -> None:
    write(tmp_path, "[tool.flyball]\nmax_turns = 30\n", "pyproject.toml")
    write(tmp_path / "package", "[tool.ruff]\nline-length = 1\n", "pyproject.toml")
    settings = Settings.load(tmp_path / "package", {})
    assert found(settings, "max_turns") == (30, f"{tmp_path / 'pyproject.toml'}:2")


def test_in_one_folder_the_file_of_our_own_goes_first(tmp_path: Path) -> None:
    write(tmp_path, "[tool.flyball]\nmax_turns = 30\n", "pyproject.toml")
    write(tmp_path, "max_turns = 31\n")
    assert found(Settings.load(tmp_path, {}), "max_turns") == (31, "flyball.toml:1")


def test_a_variable_may_name_the_file(tmp_path: Path) -> None:
    write(tmp_path, "max_turns = 30\n")
    named = write(tmp_path / "elsewhere", "max_turns = 5\n", "limits.toml")
    assert found(Settings.load(tmp_path, {"FLYBALL_CONFIG": str(named)}), "max_turns") == (5, f"{named}:1")
    assert list(Settings.load(tmp_path, {"FLYBALL_CONFIG": os.devnull})) == []
    with pytest.raises(TomlError, match=r"gone\.toml"):
        Settings.load(tmp_path, {"FLYBALL_CONFIG": str(tmp_path / "gone.toml")})


def test_settings_are_read_once(tmp_path: Path) -> None:
    path = write(tmp_path, "max_turns = 30\n")
    environ = {"FLYBALL_MAX_RETRIES": "4"}
    settings = Settings.load(tmp_path, environ)
    path.write_text("max_turns = 31\n")
    environ["FLYBALL_MAX_RETRIES"] = "5"
    assert found(settings, "max_turns") == (30, "flyball.toml:1")
    assert found(settings, "max_retries") == ("4", "FLYBALL_MAX_RETRIES")


def test_without_arguments_it_reads_this_process_and_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "max_turns = 30\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLYBALL_CONFIG")
    monkeypatch.setenv("FLYBALL_MAX_RETRIES", "4")
    settings = Settings.load()
    assert found(settings, "max_turns") == (30, "flyball.toml:1")
    assert found(settings, "max_retries") == ("4", "FLYBALL_MAX_RETRIES")


def test_a_mapping_is_just_that_mapping_nested_or_dotted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYBALL_MAX_TURNS", "40")
    settings = Settings({"max_turns": 3, "delegation": {"max_depth": 1}, "delegation.max_children": 2})
    assert found(settings, "max_turns") == (3, "code")
    assert found(settings, "delegation.max_depth") == (1, "code")
    assert found(settings, "delegation.max_children") == (2, "code")


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    "given", [{"a": 1, "a.b": 2}, {"a.b": 1, "a": {"b": 2}}, {"a.b.c": 1, "a": {"b": 2}}, {"a": {"b": 1}, "a.b.c": 3}]
)
def test_a_mapping_that_contradicts_itself_is_refused_in_any_order(given: dict[str, object], order: int) -> None:
    with pytest.raises(ConfigError, match=r"^settings: 'a"):
        Settings(dict(list(given.items())[::order]))


@pytest.mark.parametrize("order", [1, -1])
def test_tables_and_dotted_keys_are_joined_in_any_order(order: int) -> None:
    given: dict[str, object] = {"delegation.max_children": 2, "delegation": {"max_depth": 1}}
    settings = Settings(dict(list(given.items())[::order]))
    assert {setting.key: setting.value for setting in settings} == {
        "delegation.max_children": 2,
        "delegation.max_depth": 1,
    }


@pytest.mark.parametrize("found", [5, "x", [], {1: 2}, {"a": {2: 3}}])
def test_what_is_no_mapping_of_texts_is_refused(found: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings(found)
    assert caught.value.where == "settings"


def test_a_quoted_dot_in_a_file_is_part_of_the_name(tmp_path: Path) -> None:
    write(tmp_path, '"clamp.max_turns" = 20\n[clamp]\nmax_usd = 5\n')
    settings = Settings.load(tmp_path, {})
    assert found(settings, "clamp.max_turns") is None
    assert found(settings, "clamp.max_usd") == (5, "flyball.toml:3")
    assert ("clamp.max_turns", 20) in [(setting.key, setting.value) for setting in settings]


@pytest.mark.parametrize("obstacle", ["folder", "dangling link"])
def test_what_has_our_name_and_cannot_be_read_is_an_error_and_never_skipped(tmp_path: Path, obstacle: str) -> None:
    path = tmp_path / "flyball.toml"
    path.mkdir() if obstacle == "folder" else path.symlink_to(tmp_path / "gone")
    with pytest.raises(TomlError, match=r"flyball\.toml"):
        Settings.load(tmp_path, {})


def test_a_named_file_must_have_our_table(tmp_path: Path) -> None:
    path = write(tmp_path, "[tool.flybal]\nmax_turns = 1\n", "pyproject.toml")
    with pytest.raises(SettingError, match=r"FLYBALL_CONFIG.*\[tool\.flyball\]"):
        Settings.load(tmp_path, {"FLYBALL_CONFIG": str(path)})
    with pytest.raises(SettingError, match="FLYBALL_CONFIG") as caught:
        Settings.load(tmp_path, {"FLYBALL_CONFIG": ""})
    assert caught.value.found == ""


def test_a_folder_may_be_given_as_text_and_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "max_turns = 3\n")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    assert found(Settings.load("below", {}), "max_turns") == (3, f"{path.resolve()}:1")


def test_a_working_directory_that_is_gone_is_told(tmp_path: Path) -> None:
    program = "import os, flyball; os.mkdir('x'); os.chdir('x'); os.rmdir('../x'); flyball.Settings.load(environ={})"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "UsageError: the working directory no longer exists" in done.stderr


def test_a_folder_that_may_not_be_looked_into_holds_no_settings(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    write(closed, "max_turns = 3\n")
    closed.chmod(0o755)
    tmp_path.chmod(0o711)
    program = (
        "import os, sys, flyball\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "print(flyball.Settings.load(sys.argv[1], {}).find('max_turns'))"
    )
    closed.chmod(0o000)
    try:
        done = subprocess.run(
            [sys.executable, "-c", "import flyball.settings, flyball._internal.toml;" + program, str(closed / "below")],
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        closed.chmod(0o755)
    assert (done.stdout, done.stderr) == ("None\n", "")


def test_a_key_of_a_hundred_parts_is_read_and_one_of_thousands_is_refused(tmp_path: Path) -> None:
    write(tmp_path, ".".join(["a"] * 100) + " = 1\n")
    assert [setting.value for setting in Settings.load(tmp_path, {})] == [1]
    write(tmp_path, ".".join(["a"] * 2_000) + " = 1\n")
    with pytest.raises(TomlError, match="100 parts"):
        Settings.load(tmp_path, {})


def test_a_variable_that_nobody_will_look_for_keeps_its_own_name(tmp_path: Path) -> None:
    settings = Settings.load(tmp_path, {"FLYBALL_max_turns": "5"})
    assert settings.find("max_turns") is None
    assert [setting.key for setting in settings] == ["FLYBALL_max_turns"]


@pytest.mark.parametrize("text", ["delegation = 5\n", "\n\ndelegation = 5\n"])
def test_a_value_where_a_table_belongs_is_an_error_with_its_line(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    line = text.count("\n")
    with pytest.raises(SettingError) as caught:
        Settings.load(tmp_path, {}).find("delegation.max_depth")
    assert (caught.value.where, caught.value.source, caught.value.found) == ("delegation", f"flyball.toml:{line}", 5)


def test_a_tool_entry_that_is_no_table_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "[tool]\nflyball = 3\n", "pyproject.toml")
    with pytest.raises(SettingError) as caught:
        Settings.load(tmp_path, {})
    assert (caught.value.where, caught.value.source, caught.value.found) == ("tool.flyball", "pyproject.toml:2", 3)


@pytest.mark.parametrize("name", ["flyball.toml", "pyproject.toml"])
def test_a_broken_file_is_an_error_and_never_skipped(tmp_path: Path, name: str) -> None:
    write(tmp_path, "max_turns 3\n", name)
    with pytest.raises(TomlError) as caught:
        Settings.load(tmp_path, {})
    assert caught.value.where.endswith(f"{name}:1")
    assert caught.value.found == "max_turns 3"


def test_all_that_was_given_can_be_listed(tmp_path: Path) -> None:
    write(tmp_path, "max_turns = 30\n[delegation]\nmax_depth = 1\n[empty]\n")
    settings = Settings.load(tmp_path, {"FLYBALL_CLAMP__MAX_USD": "3"})
    assert [(setting.key, setting.value) for setting in settings] == [
        ("clamp.max_usd", "3"),
        ("max_turns", 30),
        ("delegation.max_depth", 1),
    ]


names = st.text("abcdefgh_", min_size=1, max_size=5).filter(lambda name: "__" not in name and name.strip("_") == name)
numbers = st.dictionaries(names, st.integers(-(10**9), 10**9), max_size=4)


@given(environment=numbers, file=numbers, nested_environment=numbers, nested_file=numbers)
def test_precedence_holds_for_any_keys(
    environment: dict[str, int], file: dict[str, int], nested_environment: dict[str, int], nested_file: dict[str, int]
) -> None:
    variables = {f"FLYBALL_{name.upper()}": str(value) for name, value in environment.items()}
    variables |= {f"FLYBALL_TABLE__{name.upper()}": str(value) for name, value in nested_environment.items()}
    lines = [f"{name} = {value}" for name, value in file.items()]
    lines += ["[table]", *(f"{name} = {value}" for name, value in nested_file.items())]
    with TemporaryDirectory() as folder:
        write(Path(folder), "\n".join(lines))
        settings = Settings.load(Path(folder), variables)
    wanted: dict[str, object] = {**file, **{name: str(value) for name, value in environment.items()}}
    wanted |= {f"table.{name}": value for name, value in nested_file.items()}
    wanted |= {f"table.{name}": str(value) for name, value in nested_environment.items()}
    for key, value in wanted.items():
        setting = settings.find(key)
        assert setting is not None
        assert setting.value == value
        if isinstance(value, int):
            line = int(setting.source.removeprefix("flyball.toml:"))
            assert lines[line - 1] == f"{key.rpartition('.')[2]} = {value}"
