from collections.abc import Callable
from pathlib import Path

import pytest

from flyball import Agent, ConfigError, Limits, tool
from flyball.models.script_file import load_script
from flyball.request import Finish, Usage
from flyball.testing import ScriptedModel, call, say, together


@tool(poll=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
def book(tmp_path: Path) -> Path:
    return tmp_path / "script.toml"


def read(book: Path, text: str) -> ScriptedModel:
    book.write_text(text)
    return load_script(book)


def test_replies_of_a_script_file_are_the_lines_of_a_script(book: Path) -> None:
    model = read(
        book,
        """
        name = "adder"
        [[reply]]
        text = "Let me add."
        calls = [{ name = "add", arguments = { a = 1, b = 2 } }]
        [[reply]]
        calls = [{ name = "add", arguments = '{"a": 1' }, { name = "add" }]
        usage = { input = 20, output = 9, cached = 4, written = 2 }
        [[reply]]
        pieces = ["It ", "is 3."]
        finish = "length"
        after = 0.5
        usage = "unknown"
        [grace]
        text = "I added."
        """,
    )
    broken = together(call("add"), call("add")).using(Usage(20, 9, 4, written=2))
    assert model.name == "adder"
    assert model.lines[0] == say("Let me add.", call("add", a=1, b=2))
    assert model.lines[1].calls == (("add", '{"a": 1'), ("add", {}))
    assert model.lines[1].usage == broken.usage
    assert model.lines[2] == say("").streaming("It ", "is 3.").ending(Finish.LENGTH).after(0.5).using(None)


def test_a_script_file_plays_a_whole_run(book: Path) -> None:
    model = read(
        book,
        """
        loop = true
        [[reply]]
        error = { kind = "retryable", message = "busy", after = 0 }
        [[reply]]
        calls = [{ name = "add", arguments = { a = 1, b = 2 } }]
        [grace]
        text = "I added."
        """,
    )
    result = Agent(model=model, tools=[add], limits=Limits(turns=2)).run("Go.")
    assert (result.stop, result.text, result.turns) == ("budget", "I added.", 2)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "script.reply"),
        ("[[reply]]\n", "script.reply[0]"),
        ('[[reply]]\ntext = "a"\npieces = ["b"]', "script.reply[0].text"),
        ('[[reply]]\ntext = "a"\nfinish = "never"', "script.reply[0].finish"),
        ('[[reply]]\ntext = "a"\nafter = -1', "script.reply[0].after"),
        ('[[reply]]\ntext = "a"\nusage = "some"', "script.reply[0].usage"),
        ('[[reply]]\ntext = "a"\nusage = { input = -1 }', "script.reply[0].usage.input"),
        ("[[reply]]\ncalls = [{ arguments = {} }]", "script.reply[0].calls[0].name"),
        ('[[reply]]\nerror = { kind = "odd", message = "x" }', "script.reply[0].error.kind"),
        ('[[replies]]\ntext = "a"', "script.replies"),
        ('[[reply]]\ntext = "a"\n[grace]\ntxt = "b"', "script.grace.txt"),
        ('nmae = "x"\n[[reply]]\ntext = "a"', "script.nmae"),
        ("[[reply", "script.toml:1"),
    ],
)
def test_a_mistake_in_a_script_file_is_told_with_its_key_and_file(book: Path, text: str, where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(book, text)
    assert caught.value.where.endswith(where)
    assert "script.toml" in str(caught.value)


def test_texts_of_mistakes_in_script_files_are_as_stored(book: Path, snapshot: Callable[..., None]) -> None:
    wrong = {
        "empty": "",
        "value": '[[reply]]\ntext = "a"\nfinish = "never"',
        "key": 'nmae = "x"\n[[reply]]\ntext = "a"',
    }
    for name, text in wrong.items():
        with pytest.raises(ConfigError) as caught:
            read(book, text)
        snapshot(str(caught.value).replace(str(book), "script.toml"), name)
