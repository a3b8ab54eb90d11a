from pathlib import Path

import pytest

from flyball import Agent, ConfigError, Limits, tool
from flyball.models.playbook import scripted
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
    return scripted(book)


def test_its_replies_are_the_lines_of_a_script(book: Path) -> None:
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


def test_it_plays_a_whole_run(book: Path) -> None:
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
    ("text", "words"),
    [
        ("", "at least one [[reply]]"),
        ("[[reply]]\n", "text, pieces, calls or an error"),
        ('[[reply]]\ntext = "a"\npieces = ["b"]', "no text beside pieces"),
        ('[[reply]]\ntext = "a"\nfinish = "never"', "one of stop"),
        ('[[reply]]\ntext = "a"\nafter = -1', "seconds, 0 or more"),
        ('[[reply]]\ntext = "a"\nusage = "some"', 'or "unknown"'),
        ('[[reply]]\ntext = "a"\nusage = { input = -1 }', "input"),
        ("[[reply]]\ncalls = [{ arguments = {} }]", "the name of a tool"),
        ('[[reply]]\nerror = { kind = "odd", message = "x" }', "one of retryable"),
        ('[[replies]]\ntext = "a"', "reply"),
        ('[[reply]]\ntext = "a"\n[grace]\ntxt = "b"', "text"),
        ('nmae = "x"\n[[reply]]\ntext = "a"', "name"),
        ("[[reply", "valid TOML"),
    ],
)
def test_every_mistake_is_told_with_its_file(book: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(book, text)
    assert words in str(caught.value)
    assert "script.toml" in str(caught.value)
