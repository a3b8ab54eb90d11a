"""Text from models, tools, servers and files takes time that grows with its size, whatever is in it.

Each case reads hostile text, and benign text of the same size, of up to 256 KB. To add a case, add a line. A module
that uses `re` has a case, here or in test_hostile_values.py, or a reason why its input is bounded.
"""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flyball
from flyball._internal.attachments import count_pages
from flyball._internal.path import has_value
from flyball._internal.text import redact_command
from flyball._internal.toml import TomlDocument
from flyball.agent.output import Output
from flyball.budget.budget import IterationBudget
from flyball.budget.deadline import Deadline
from flyball.budget.run_budget import TurnBudget
from flyball.chain.hop_context import ROOT
from flyball.cli.report import escape_markdown as as_markdown
from flyball.cli.run_config import RunConfig
from flyball.cli.saved_config import config_to_dict
from flyball.cli.transcript import render_conversation
from flyball.completion.report_check import RecordedWork
from flyball.errors import quote_value, suggest_names
from flyball.gateway.programs.settings_files import strip_comments
from flyball.history.record import RunRecord
from flyball.loop.calibration import estimate_likely_tokens
from flyball.message import Message, MessageType, Role
from flyball.models import local_prompt
from flyball.models.endpoint import redact_url
from flyball.models.failures import error_from_response, error_from_stream
from flyball.person import escape_control_characters, escape_unprintable
from flyball.progress import Progress
from flyball.request import Reply, Request
from flyball.rules.template import Template
from flyball.rules.view import View
from flyball.rules.vocabulary import Vocabulary
from flyball.serve.request import parse_request
from flyball.testing.cassette import Redactor
from flyball.testing.server.reply import split_words
from flyball.toolbox.fetch_tool import fetch
from flyball.toolbox.html import FetchedBody, as_text, html_to_text
from flyball.tools.definition import Tool
from flyball.tools.excerpt import make_excerpt, serialize_content
from flyball.tools.mcp_client.server import mcp
from flyball.tools.mcp_client.stdio import OutputTail
from flyball.tools.pattern import Pattern
from flyball.wire import GEMINI, find_wire, normalize, to_anthropic
from flyball.wire.gemini import is_gemini_3
from flyball.wire.sse import EventReader
from flyball.wire.structured import sanitize_tool_name

Read = Callable[[Any], object]
Make = Callable[[int], Any]
Compare = Callable[[Read, Make, Make], None]

SOURCE = Path(flyball.__file__).parent


def repeated(unit: str, end: str = "", start: str = "") -> Make:
    """Make a text of about so many characters."""
    return lambda size: start + unit * (size // len(unit)) + end


def pieces(piece: bytes) -> Make:
    """Make a stream in small pieces."""
    return lambda size: [piece] * (size // 8)


def packs(unit: bytes) -> Make:
    """Make the bytes of a PDF document."""
    return lambda size: b"%PDF-1.7\n" + unit * (size // len(unit))


PROSE = repeated("A word, and another one.\n")
LETTERS = repeated("x")
ADDRESS = repeated("abc", start="http://")
CALLED = '{"name": "respond", "arguments": {"text": "'


def error_page(page: str) -> object:
    return error_from_response("host", 502, {}, page.encode(), secrets=("sk-of-a-user",))


def error_code(code: str) -> object:
    return error_from_stream("host", {"code": code})


def events(chunks: list[bytes]) -> object:
    reader = EventReader()
    return [reader.feed(chunk) for chunk in chunks], reader.close()


def gemini_path(path: str) -> object:
    return GEMINI.parse_request({}, path)


def reply(text: str) -> object:
    return local_prompt.parse_reply(Request((), tools=[{"name": "f"}]), Reply(text))


def typed_answer(text: str) -> object:
    budget = TurnBudget({"turns": IterationBudget("turns", 1)}, Deadline.after(60))
    return Output(list[int])(Progress("run", budget, (), {}, text=text))


def tool(name: str) -> object:
    return Tool(typed_answer, name=name)


def message(**fields: str) -> object:
    return Message.from_dict({"schema": "flyball.message", "version": 1, "id": "r:1", **fields})


def image(url: str) -> object:
    part = {"type": "image_url", "image_url": {"url": url}}
    return to_anthropic(normalize([{"role": "user", "content": [part]}], run="r"))


def matched(text: str) -> object:
    return Pattern("^(a+)+$").found_in(text[: len(text) // 8] + text[-1], lambda _: None)


def stderr(chunks: list[bytes]) -> object:
    tail = OutputTail(["secret"])
    return [tail.write(chunk) for chunk in chunks], tail.text


def template(text: str) -> object:
    return Template("{{ text }}", Vocabulary({"text"}), max_characters=2**21).render(View({"text": text}))


def page(text: str) -> object:
    return as_text(FetchedBody(text.encode(), True), "text/html")


def export(text: str) -> object:
    said = {"type": "text", "role": "assistant", "content": text}
    result = {"type": "tool_result", "role": "tool", "content": text, "payload": {"name": "f", "call_id": "c"}}
    return render_conversation(
        RunRecord.from_dict({"stop": "completed", "events": [], "explanation": "x", "messages": [said, result]})
    )


def place(text: str) -> object:
    return TomlDocument(text).line("a")


def excerpt_of(text: str) -> object:
    return make_excerpt(serialize_content(text), "a")


def look_up(text: str) -> object:
    return has_value(text, "a.b.c.d.e")


def text_of_type(kind: str) -> object:
    return as_text(FetchedBody(b"x", True), kind)


def escaped(text: str) -> object:
    return escape_unprintable(text) + escape_control_characters(text)


def saved_config(text: str) -> object:
    return config_to_dict(RunConfig(model="m", mcp=[text]))


def long_key(size: int) -> str:
    return json.dumps({"m" * size: 1})


def short_key(size: int) -> str:
    return '{"message": "x"}'


MARKUP = repeated("<p>A <b>warm</b> &amp; new\n")


def find_claims(text: str) -> object:
    payload = {"call_id": "c", "name": text, "arguments": text}
    call = Message("r", 1, 0.0, MessageType.TOOL_CALL, Role.ASSISTANT, "", payload)
    result = Message("r", 2, 0.0, MessageType.TOOL_RESULT, Role.TOOL, text, payload)
    return RecordedWork([call, result]).find_unsupported(text)


CASES: list[tuple[str, str, Read, Make, Make]] = [
    ("models/failures.py", "an error page of <", error_page, repeated("<"), PROSE),
    ("models/failures.py", "an error page of tags", error_page, repeated("<a>"), PROSE),
    ("models/failures.py", "an error page of [", error_page, repeated("["), PROSE),
    ("models/failures.py", "a long code of an error", error_code, repeated("context "), PROSE),
    ("wire/sse.py", "a line without end", events, pieces(b"data: x"), pieces(b"data:x\n\n")),
    ("wire/sse.py", "nothing but CR", events, pieces(b"\r"), pieces(b"data:x\n\n")),
    ("models/local_prompt.py", "a reply of blanks", reply, repeated(" ", "{"), LETTERS),
    ("models/local_prompt.py", "a reply of escapes", reply, repeated("\\\\", "", CALLED), repeated("xy", "", CALLED)),
    ("wire/structured.py", "a name of signs", sanitize_tool_name, repeated("!"), LETTERS),
    ("models/endpoint.py", "a URL of ://", redact_url, repeated("://"), ADDRESS),
    ("models/endpoint.py", "a URL of ?", redact_url, repeated("?"), ADDRESS),
    ("agent/output.py", "fences that open", typed_answer, repeated("```\n\n"), PROSE),
    ("agent/output.py", "fences that open and close", typed_answer, repeated("```json\nx\n```\n"), PROSE),
    ("agent/output.py", "a fence that never closes", typed_answer, repeated("```json\n"), PROSE),
    ("errors.py", "a name like others", lambda name: suggest_names(name, [name + "y"] * 20), LETTERS, PROSE),
    ("errors.py", "a text of quotes", quote_value, repeated("\"'"), PROSE),
    ("message.py", "an id of colons", lambda text: message(id=text), repeated(":1", "x"), LETTERS),
    ("message.py", "a time of digits", lambda text: message(created_at=text), repeated("1", "", "2031-"), LETTERS),
    ("wire/images.py", "an image of ;", image, repeated(";", start="data:"), LETTERS),
    ("tools/definition.py", "a name of signs", tool, repeated("!"), LETTERS),
    ("tools/pattern.py", "a pattern that backtracks", matched, repeated("a", "!"), repeated("a")),
    ("tools/mcp_client/server.py", "a command of keys", lambda text: mcp(text).name, repeated("key "), repeated("x ")),
    ("tools/mcp_client/stdio.py", "stderr in small pieces", stderr, pieces(b"x"), pieces(b"xxxxxxxx")),
    ("tools/excerpt.py", "a result of quotes", excerpt_of, repeated('"'), PROSE),
    *(
        ("_internal/attachments.py", f"a document of {unit!r}", count_pages, packs(unit), packs(b"Tj\n"))
        for unit in (b"/Type ", b"/Type" + b" " * 1_000, b"/Type /Page", b"/ObjStm", b"/ObjStm stream\n", b"stream")
    ),
    ("_internal/text.py", "a command of keys", lambda text: redact_command([text]), repeated("key"), repeated("xyz")),
    ("_internal/text.py", "a command of starts of keys", lambda text: redact_command([text]), repeated("sk-a "), PROSE),
    ("_internal/path.py", "JSON that is nested", look_up, repeated('{"a":', "1"), PROSE),
    ("rules/template.py", "a value of braces", template, repeated("{{"), PROSE),
    *(
        ("toolbox/html.py", f"a page of {unit!r}", html_to_text, repeated(unit), MARKUP)
        for unit in ("<", "<a", "<a href='", '<a "', "<!--", "<script>", "</", "&", "&#", "<pre>\n", "<li>")
    ),
    ("toolbox/html.py", "a page of charsets", page, repeated("charset = "), repeated("<p>All warm</p>\n")),
    ("toolbox/html.py", "a long type", text_of_type, repeated("text/a+"), LETTERS),
    ("toolbox/fetch_tool.py", "a long URL", lambda url: asyncio.run(fetch()[0].function(url)), repeated("."), LETTERS),
    ("person.py", "a text of controls", escaped, repeated("\x1b"), PROSE),
    ("cli/transcript.py", "a text of fences", export, repeated("```\n"), PROSE),
    ("cli/report.py", "a text of marks", as_markdown, repeated("*_"), PROSE),
    *(
        ("cli/saved_config.py", f"a command of {unit!r}", saved_config, repeated(unit),
         LETTERS)
        for unit in ("?", "&a", "passw", "auth", "://", "key  ", "credential_")
    ),
    *(
        ("testing/cassette.py", f"a text of {unit!r}", Redactor(("sk-of-a-user",)).redact_text, repeated(unit), PROSE)
        for unit in ("eyJ-", "sk-", "1sk-", "sk-a.", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "-----END A")
    ),
    ("testing/server/reply.py", "a text of blanks", split_words, repeated(" "), PROSE),
    ("_internal/toml.py", "a file of comments", place, repeated("# x\n"), repeated('x"\n', start='a = """')),
    ("_internal/toml.py", "a key of many parts", place, repeated("a.", "a = 1"), repeated("a", " = 1")),
    ("_internal/toml.py", "a table of many parts", place, repeated("a.", "a]", "["), repeated("a", "]", "[")),
    ("_internal/toml.py", "a text of many dots", place, repeated("a.", '"', 'a = "'), repeated("a", '"', 'a = "')),
    ("_internal/toml.py", "a text of escapes", place, repeated('\\"', "", 'a = "'), repeated("a", "", 'a = "')),
    ("_internal/toml.py", "a file of brackets", place, repeated("[1],", "1]", "a = ["), repeated("1,", "1]", "a = [")),
    *(
        ("gateway/programs/settings_files.py", f"settings of {unit!r}", strip_comments, repeated(unit), PROSE)
        for unit in ("/*", '\\"', '"', ", ", "// ", "*/", ",")
    ),
    ("wire/formats.py", "a path of models", find_wire, repeated("/models/"), repeated("/v1/x")),
    ("wire/gemini.py", "a path of models", gemini_path, repeated("/models/"), repeated("/v1/x")),
    ("wire/gemini.py", "a long number", is_gemini_3, repeated("9", "", "gemini-"), LETTERS),
    *(
        ("completion/report_check.py", f"a report of {unit!r}", find_claims, repeated(unit), PROSE)
        for unit in (
            "I ", "was ", "a-", '"', "the ", "ly ", "I have nearly ", "1,", "all the tasks ", "# ",
            "the user ", "what I ",
        )
    ),
    *(
        ("loop/calibration.py", f"a text of {unit!r}", estimate_likely_tokens, repeated(unit), PROSE)
        for unit in ("a", "bcd", "A", "1", " ", "é", "a1", "\n")
    ),
    ("serve/request.py", "a long key", parse_request, long_key, short_key),
    ("chain/hop_context.py", "a long root", ROOT.fullmatch, repeated("."), LETTERS),
]  # fmt: skip

BOUNDED = {
    "cli/exec_command.py": "names of variables of the user",
    "gateway/door.py": "a path, which the server bounds, matched by classes of characters",
    "gateway/subscription.py": "names of headers, which HTTP libraries bound, each matched without repetition",
    "gateway/programs/continue_dev.py": "lines of a file that the user writes, matched at their start or at a name",
    "gateway/programs/litellm_programs.py": "the name of a model, and names in a file, both of which the user writes",
    "gateway/programs/recognition.py": "the command line of the user",
    "gateway/programs/wrappers.py": "the command line of the user",
    "gateway/last_request.py": "names and descriptions of tools, matched at their start only",
    "gateway/providers.py": "keys and names of the user",
    "completion/report_words.py": "texts that report_check.py has cut",
    "chain/foreign.py": "HTTP servers bound a header, and each is read by an expression without repetition of its own",
    "cli/commands/models.py": "names of the installed price list, matched by fixed words",
    "models/responses.py": "the name of a model, which the user writes; the words of an error, at most 500 characters",
    "cli/age.py": "an age that the user types",
    "cli/hints.py": "an id of a run, matched by one class of characters",
    "doctor/installation.py": "the requirements of this package itself",
    "_internal/table.py": "keys of a file that the user writes, each matched once by one class of characters",
    "rules/file.py": "names in a file that the user writes, matched by parts that share no character",
    "testing/plugin.py": "the names of tests",
    "toolbox/regex_worker.py": "runs in a process of its own, which is killed",
    "tool_rules/rules.py": "the place of a mistake, which is made here",
    "wire/stream.py": "single bytes",
    "tools/signature.py": "docstrings, which are code of the user",
    "tools/mcp_client/session.py": "names of tools, matched by one class of characters",
}
"""Modules that use `re`, and why their input needs no case."""


@pytest.mark.parametrize(
    ("read", "hostile", "benign"), [case[2:] for case in CASES], ids=[f"{case[0]}: {case[1]}" for case in CASES]
)
def test_hostile_text_is_read_about_as_fast_as_benign_text(
    assert_as_fast: Compare, read: Read, hostile: Make, benign: Make
) -> None:
    assert_as_fast(read, hostile, benign)


def test_each_module_that_uses_regular_expressions_has_a_case_or_a_reason() -> None:
    uses = re.compile(r"^\s*(?:import re\b|from re\b)", re.MULTILINE)
    users = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if uses.search(path.read_text())}
    assert users - {case[0] for case in CASES} == set(BOUNDED)


def test_each_case_names_a_module() -> None:
    assert [case[0] for case in CASES if not (SOURCE / case[0]).is_file()] == []
