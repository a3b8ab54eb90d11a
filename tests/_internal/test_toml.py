import tomllib
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball._internal.toml import MAX_BYTES, TomlDocument
from flyball.errors import TomlError

TEXT = (
    '''\
# a comment with [brackets] and a = sign
max_turns = 40
"quoted key" = 1   # and = here
'single.dotted' = 2
text = """
max_tokens = 99
[fake]
"""
literal = \'\'\'
fake = 1\'\'\'
list = [
  "max_usd = 3",  # ]
  [1, 2],
]
inline = { a = 1, b = { c = 2 } }
a.b."c d" = 3

[delegation]
  max_iterations = 7
\tmax_depth=1

[ deep . er ]
x = 1

[[test]]
name = "first"
[test.context]
turns = 1

[[test]]
name = "second"
[[test.step]]
do = 1
[[test.step]]
do = 2

["esc\\u0061ped"]
x = """a\\"""b"""""
y = 1
'''
    + r"""
[quotes]
z = "a\"b # ["
w = '''x'''''
v = '''['''''
end = 1
"""
)


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (("max_turns",), 2),
        (("quoted key",), 3),
        (("single.dotted",), 4),
        (("text",), 5),
        (("literal",), 9),
        (("list",), 11),
        (("list", 1), 11),
        (("inline",), 15),
        (("inline", "b", "c"), 15),
        (("a", "b", "c d"), 16),
        (("a", "b"), 16),
        (("delegation",), 18),
        (("delegation", "max_iterations"), 19),
        (("delegation", "max_depth"), 20),
        (("delegation", "not_there"), 18),
        (("deep",), 22),
        (("deep", "er", "x"), 23),
        (("test",), 25),
        (("test", 0), 25),
        (("test", 0, "name"), 26),
        (("test", 0, "context", "turns"), 28),
        (("test", 1, "name"), 31),
        (("test", 1, "step", 0, "do"), 33),
        (("test", 1, "step", 1, "do"), 35),
        (("test", 1, "step", 1), 34),
        (("escaped", "y"), 39),
        (("quotes", "z"), 42),
        (("quotes", "w"), 43),
        (("quotes", "end"), 45),
        (("not_there",), None),
        (("max_tokens",), None),
        (("fake",), None),
        ((), None),
    ],
)
def test_each_key_is_found_on_its_line_or_that_of_the_table_around_it(place: tuple[Any, ...], line: int | None) -> None:
    assert TomlDocument(TEXT).line(*place) == line


def test_a_table_that_is_implied_first_and_opened_later_is_where_it_is_opened() -> None:
    assert TomlDocument("[a.b]\nx = 1\n[a]\ny = 2\n").line("a") == 3


def test_windows_line_ends_count_once() -> None:
    assert TomlDocument("a = 1\r\n\r\nb = 2\r\n").line("b") == 3


keys = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6)
scalars = st.sampled_from(
    [
        "1",
        "true",
        '"a = 1 # [x]"',
        "'[t]'",
        '"""\nk = 1\n[t]\n"""',
        "'''\nk = 1\n'''",
        "[\n 1, # ]\n [2],\n]",
        "{a = [\n1]}",
    ]
)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[tuple[str, ...], int]]:
    """A TOML text and the true line of each of its keys, by construction."""
    text, lines = "", dict[tuple[str, ...], int]()
    tables = draw(st.lists(keys, unique=True, max_size=3))
    for table in [None, *tables]:
        if table is not None:
            lines[(table,)] = text.count("\n") + 1
            text += f"[{quoted(table)}]\n"
        for key in draw(st.lists(keys, unique=True, max_size=4)):
            path = (key,) if table is None else (table, key)
            if path in lines or (table is None and key in tables):
                continue
            text += draw(st.sampled_from(["", "\n", "# a = 1\n", "  "]))
            lines[path] = text.count("\n") + 1
            text += f"{quoted(key)} = {draw(scalars)} # x\n"
    return text, lines


def quoted(key: str) -> str:
    return '"' + "".join(f"\\U{ord(c):08X}" if c in '"\\' else c for c in key) + '"'


@given(documents())
def test_no_line_is_ever_wrong(case: tuple[str, dict[tuple[str, ...], int]]) -> None:
    text, lines = case
    document = TomlDocument(text)
    assert document.data == tomllib.loads(text)
    assert {path: document.line(*path) for path in lines} == lines


@pytest.mark.parametrize(
    ("content", "line", "found"),
    [
        (b"a = 1\nmax_turns 40\n", ":2", "max_turns 40"),
        (b"a = 1\na = 2\n", ":2", "a = 2"),
        (b"a = [1,", ":1", "a = [1,"),
        (b"a = 1\n# caf\xe9\n", ":2", b"\xe9"),
        (b"a = " + b"9" * 5_000, "", None),
        (b"a = " + b"[" * 5_000 + b"]" * 5_000, "", None),
    ],
)
def test_a_file_that_is_no_toml_is_named_with_its_line(
    tmp_path: Path, content: bytes, line: str, found: object
) -> None:
    path = tmp_path / "f.toml"
    path.write_bytes(content)
    with pytest.raises(TomlError) as caught:
        TomlDocument.read(path)
    assert (caught.value.code, caught.value.where) == ("toml_invalid", f"{path}{line}")
    assert found is None or caught.value.found == found


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TomlError, match=r"missing\.toml"):
        TomlDocument.read(tmp_path / "missing.toml")


@pytest.mark.parametrize("statement", ["[{}]", "[[{}]]", "{} = 1", "x = {{ {} = 1 }}"])
@pytest.mark.parametrize("part", ["a", '"a"', "'a'", " a\t"])
def test_a_key_of_too_many_parts_is_refused_with_its_line(statement: str, part: str) -> None:
    dotted = ".".join([part] * 101)
    with pytest.raises(TomlError, match="100 parts") as caught:
        TomlDocument("z = 1\n" + statement.format(dotted), "f.toml")
    assert caught.value.where == "f.toml:2"


def test_dots_in_values_are_not_counted_as_parts() -> None:
    dots = "a." * 1_000
    text = f"x = \"{dots}\"  # {dots}\ny = [{'1.5, ' * 200}]\nz = '''\n{dots}\n'''\n"
    assert TomlDocument(text).line("z") == 3


def test_lines_of_keys_take_memory_that_grows_with_the_text() -> None:
    def measure(parts: int) -> int:
        document = TomlDocument("".join(f"[t{n}.{'.'.join('a' * parts)}]\n" for n in range(100)))
        tracemalloc.start()
        try:
            assert document.line("t7", "a") == 8
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert measure(96) < 5 * measure(24)


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text("#" * (MAX_BYTES + 1))
    with pytest.raises(TomlError, match="bytes"):
        TomlDocument.read(path)
