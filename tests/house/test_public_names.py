"""What `from flyball import ...` offers: few names, each explained, each loaded only when it is used."""

import ast
import inspect
from pathlib import Path

import pytest

import flyball
from flyball._internal.syntax import parse_python


def test_there_are_at_most_forty_in_order() -> None:
    assert len(flyball.__all__) <= 40
    assert flyball.__all__ == sorted(flyball.__all__)


def test_each_name_and_each_public_method_has_a_docstring() -> None:
    bare = [name for name in flyball.__all__ if not (getattr(flyball, name).__doc__ or "").strip()]
    for name in flyball.__all__:
        for key, member in inspect.getmembers(getattr(flyball, name)):
            is_public = not key.startswith("_") and (callable(member) or isinstance(member, property))
            if is_public and not (member.__doc__ or "").strip():
                bare.append(f"{name}.{key}")
    assert bare == []


def test_what_the_type_checker_sees_is_what_is_loaded() -> None:
    tree = parse_python(Path(flyball.__file__).read_text())
    checked = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module != "_deprecated"
        for alias in node.names
    }
    assert set(checked) == set(flyball.__all__)
    for name, home in checked.items():
        assert f"{getattr(flyball, name).__module__}.".startswith(f"flyball.{home}.")


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'flyball' has no attribute 'max_turns_hack'"):
        _ = flyball.max_turns_hack  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]


def test_the_directory_lists_them_all() -> None:
    assert {*flyball.__all__, "__version__"} <= set(dir(flyball))
