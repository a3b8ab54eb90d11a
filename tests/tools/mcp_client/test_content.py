"""What a server's result becomes."""

from typing import Any

import pytest
from mcp.types import CallToolResult

from flyball.errors import ToolFailed
from flyball.tools.mcp_client.session import extract_value


def result(*blocks: dict[str, Any], **fields: Any) -> CallToolResult:
    return CallToolResult.model_validate({"content": list(blocks), **fields})


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


class TestText:
    def test_is_joined_line_by_line(self) -> None:
        assert extract_value(result(text("a"), text("b"))) == "a\nb"

    def test_the_text_of_a_content_may_be_missing(self) -> None:
        assert extract_value(result()) == ""


class TestStructuredContent:
    @pytest.mark.parametrize(
        ("structured", "texts"),
        [
            ({"a": 1, "b": [2]}, ['{"b": [2], "a": 1}']),
            ({"result": 3}, ["3"]),
            ({"result": "3"}, ["3"]),
            ({"result": ["x", "y"]}, ["x", "y"]),
            ({"a": 1}, []),
            ({"a": 1}, [""]),
        ],
    )
    def test_is_the_value_where_the_text_only_repeats_it(self, structured: Any, texts: list[str]) -> None:
        assert extract_value(result(*map(text, texts), structuredContent=structured)) == structured

    def test_stands_beside_a_text_that_says_more(self) -> None:
        both = extract_value(result(text("Two files."), text("{"), structuredContent={"files": 2}))
        assert both == {"structured": {"files": 2}, "text": "Two files.\n{"}


class TestAnError:
    def test_is_raised_with_its_words(self) -> None:
        with pytest.raises(ToolFailed, match=r"^no such file$"):
            extract_value(result(text("no such file"), isError=True))

    def test_may_be_structured_or_silent(self) -> None:
        with pytest.raises(ToolFailed, match=r'^{"code": 3}$'):
            extract_value(result(structuredContent={"code": 3}, isError=True))
        with pytest.raises(ToolFailed, match="no reason"):
            extract_value(result(isError=True))


@pytest.mark.parametrize(
    ("block", "line"),
    [
        ({"type": "image", "data": "AAAA", "mimeType": "image/png"}, "image/png, 3"),
        ({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}, "audio/wav, 3"),
        ({"type": "resource_link", "name": "log", "uri": "file:///log"}, "[log: file:///log]"),
        ({"type": "resource", "resource": {"uri": "file:///a", "text": "whole"}}, "whole"),
        (
            {"type": "resource", "resource": {"uri": "file:///a", "blob": "AAAA"}},
            "file:///a, 3",
        ),
    ],
)
def test_a_block_that_is_no_text_is_told_in_a_line(block: dict[str, Any], line: str) -> None:
    first, told = str(extract_value(result(text("see"), block))).splitlines()
    assert first == "see"
    assert line in told
