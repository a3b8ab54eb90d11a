import pytest

from flyball.tools import signature

GOOGLE = """Find pages.

    Looks in the index first.

    Args:
        query: what to look for,
            in plain words
        limit (int, optional): how many

    Returns:
        pages: a list
    """
NUMPY = """Find pages.

    Looks in the index first.

    Parameters
    ----------
    query : str
        what to look for,
        in plain words
    limit
        how many

    Returns
    -------
    pages
        a list
    """
REST = """Find pages.

    Looks in the index first.

    :param query: what to look for,
        in plain words
    :param int limit: how many
    :returns: pages
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, REST], ids=["google", "numpy", "rest"])
def test_each_style_gives_the_description_and_the_parameters(text: str) -> None:
    found = signature.parse_docstring(text)
    assert found.description == "Find pages.\n\nLooks in the index first."
    assert found.parameters == {"query": "what to look for, in plain words", "limit": "how many"}


@pytest.mark.parametrize("text", [None, "", "   "])
def test_an_empty_docstring_describes_nothing(text: str | None) -> None:
    assert signature.parse_docstring(text) == ("", {})


def test_types_may_be_written_in_any_way() -> None:
    assert signature.parse_docstring("X.\n\nArgs:\n    a (tuple(int, int)): pair").parameters == {"a": "pair"}
    assert signature.parse_docstring("X.\n\n:param dict[str, int] c: table").parameters == {"c": "table"}


def test_a_note_reaches_the_model() -> None:
    text = "Do it.\n\nNote:\n    Never on a Friday.\n\nArgs:\n    a: b"
    assert "Never on a Friday." in signature.parse_docstring(text).description


def test_what_is_in_no_style_is_description() -> None:
    assert signature.parse_docstring("Add: it up.\n\na is the first.") == ("Add: it up.\n\na is the first.", {})


@pytest.mark.parametrize("text", ["Args:", "Args:\nx", "Parameters\n----------", "X.\n\nArgs:\n    a: b\nc: d"])
def test_odd_ones_do_no_harm(text: str) -> None:
    assert set(signature.parse_docstring(text).parameters) <= {"a"}
