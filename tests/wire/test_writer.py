import copy
from typing import Any

import pytest

from flyball.errors import MessageError
from flyball.message import Message, MessageType, Role, repair_pairs
from flyball.wire import normalize, to_anthropic, to_openai

Json = dict[str, Any]
CACHE = {"cache_control": {"type": "ephemeral"}}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def call(call_id: str, arguments: str = "{}") -> Json:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}}


def use(call_id: str, arguments: Json) -> Json:
    return {"type": "tool_use", "id": call_id, "name": "f", "input": arguments}


def answer(call_id: str, content: object) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


URL = "https://x.test/a.png"
THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}

OPENAI: list[Json] = [
    {"role": "developer", "content": "Be brief."},
    {"role": "system", "content": [text("Be kind."), text("Be quick.")]},
    {"role": "user", "content": "weather?", "name": "bob"},
    {"role": "user", "content": [text("alone in its list")]},
    {
        "role": "user",
        "content": [text("see") | CACHE, {"type": "image_url", "image_url": {"url": URL, "detail": "low"}}],
    },
    {"role": "assistant", "content": None, "tool_calls": [call("a", '{"x":  1}'), call("b", "oops")]},
    {"role": "tool", "tool_call_id": "a", "content": "sunny"},
    {"role": "tool", "tool_call_id": "b", "name": "f", "content": [text("wet"), text("cold")]},
    {"role": "assistant", "content": "", "tool_calls": [call("c") | {"extra_content": {"google": "s"}, "index": 0}]},
    {"role": "tool", "tool_call_id": "c", "content": "", "name": None},
    {"role": "assistant", "content": [text("one")], "tool_calls": [call("d")], "refusal": None},
    {"role": "tool", "tool_call_id": "d", "content": []},
    {"role": "assistant", "content": None, "refusal": "I will not."},
    {"role": "assistant", "content": None},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    {"role": "assistant", "content": "bye", "tool_calls": None, "annotations": [], "audio": None},
]
CALL_WITH_MORE = call("a") | {"function": {"name": "f", "arguments": "{}", "parsed_arguments": {"x": 1}}}

ANTHROPIC: list[Json] = [
    {"role": "user", "content": "weather?"},
    {"role": "assistant", "content": [text("alone in its list")]},
    {"role": "user", "content": [text("see") | CACHE]},
    {"role": "assistant", "content": [THINKING, text("so"), use("a", {"x": [1]}), use("b", {}) | CACHE]},
    {
        "role": "user",
        "content": [
            answer("a", "sunny") | {"is_error": False},
            answer("b", [text("wet"), {"type": "image", "source": {"type": "url", "url": URL}}]) | {"is_error": True},
            text("go on"),
        ],
    },
    {"role": "assistant", "content": [use("c", {})], "id": "msg_1", "type": "message", "usage": {"input_tokens": 3}},
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c"}, answer("d", ""), answer("e", []) | CACHE],
    },
    {"role": "assistant", "content": [text("bye") | {"citations": None}], "type": "message"},
    {"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "x"}}, text("?")]},
]


def test_an_openai_conversation_comes_back_as_it_was() -> None:
    assert to_openai(normalize(OPENAI, run="r")) == OPENAI


def test_an_anthropic_conversation_comes_back_as_it_was() -> None:
    assert to_anthropic(normalize(ANTHROPIC, run="r")) == (None, ANTHROPIC)


def test_further_keys_of_a_function_come_back_too() -> None:
    given = [{"role": "assistant", "content": None, "tool_calls": [CALL_WITH_MORE]}]
    assert to_openai(normalize(given, run="r")) == given


def test_what_may_be_missing_is_filled_in() -> None:
    bare = {key: value for key, value in call("a").items() if key != "type"}
    assert to_openai(normalize([{"role": "assistant", "tool_calls": [bare]}], run="r")) == [
        {"role": "assistant", "content": None, "tool_calls": [call("a")]}
    ]


def test_messages_of_openai_are_written_for_anthropic() -> None:
    system, messages = to_anthropic(normalize(OPENAI, run="r"))
    assert system == "Be brief.\n\nBe kind.\n\nBe quick."
    assert messages == [
        {"role": "user", "content": "weather?"},
        {"role": "user", "content": [text("alone in its list")]},
        {"role": "user", "content": [text("see"), {"type": "image", "source": {"type": "url", "url": URL}}]},
        {"role": "assistant", "content": [use("a", {"x": 1}), use("b", {"_raw": "oops"})]},
        {"role": "user", "content": [answer("a", "sunny"), answer("b", "wet\ncold")]},
        {"role": "assistant", "content": [use("c", {})]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c"}]},
        {"role": "assistant", "content": [text("one"), use("d", {})]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "d"}]},
        {"role": "assistant", "content": "I will not."},
        {"role": "assistant", "content": "[left out: refusal]"},
        {"role": "assistant", "content": "bye"},
    ]


def test_messages_of_anthropic_are_written_for_openai() -> None:
    assert to_openai(normalize(ANTHROPIC, run="r")) == [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": [text("alone in its list")]},
        {"role": "user", "content": [text("see") | CACHE]},  # both providers' users write it so
        {"role": "assistant", "content": "so", "tool_calls": [call("a", '{"x": [1]}'), call("b")]},
        {"role": "tool", "tool_call_id": "a", "content": "sunny"},
        {"role": "tool", "tool_call_id": "b", "content": "wet\n[left out: image]"},
        {"role": "user", "content": "go on"},
        {"role": "assistant", "content": None, "tool_calls": [call("c")]},
        {"role": "tool", "tool_call_id": "c", "content": ""},
        {"role": "tool", "tool_call_id": "d", "content": ""},
        {"role": "tool", "tool_call_id": "e", "content": ""},
        {"role": "assistant", "content": [text("bye")]},
        {"role": "user", "content": [text("[left out: document]"), text("?")]},
    ]


def base64(data: str) -> Json:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def test_an_image_crosses_over_in_both_directions() -> None:
    here, there = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}, base64("aGk=")
    assert to_anthropic(normalize([{"role": "user", "content": [here]}], run="r"))[1][0]["content"] == [there]
    assert to_openai(normalize([{"role": "user", "content": [there]}], run="r"))[0]["content"] == [here]


def test_an_image_that_only_its_provider_can_open_is_named() -> None:
    kept = {"type": "image", "source": {"type": "file", "file_id": "f"}}
    assert to_openai(normalize([{"role": "user", "content": [kept]}], run="r"))[0]["content"] == "[left out: image]"


def test_a_part_that_is_described_crosses_over_as_its_description() -> None:
    message = part({"type": "document"}, Role.USER)
    message.content = "the contract"
    assert to_openai([message]) == [{"role": "user", "content": "the contract"}]


def part(data: Json, role: Role) -> Message:
    return Message("r", 0, 0.0, MessageType.MULTIMODAL_PART, role, "", {"part": data, "shape": "anthropic"})


def test_private_reasoning_stays_with_its_provider() -> None:
    assert to_openai(normalize([{"role": "assistant", "content": [THINKING]}], run="r")) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"a": {"b": [1, 2.5, null]}}', {"a": {"b": [1, 2.5, None]}}),
        ("", {}),
        (" \n", {}),
        ("[1]", {"_raw": "[1]"}),
        ("null", {"_raw": "null"}),
        ('{"a": ', {"_raw": '{"a": '}),
        ('{"a": NaN}', {"_raw": '{"a": NaN}'}),
        ('{"a": 1e999}', {"_raw": '{"a": 1e999}'}),
        ("[" * 100_000, {"_raw": "[" * 100_000}),
    ],
)
def test_json_text_becomes_the_dict_it_says_or_is_passed_on(arguments: str, expected: Json) -> None:
    given = [{"role": "assistant", "content": None, "tool_calls": [call("a", arguments)]}]
    assert to_anthropic(normalize(given, run="r"))[1][0]["content"] == [use("a", expected)]


def test_arguments_keep_their_letters_as_json_text() -> None:
    written = to_openai(normalize([{"role": "assistant", "content": [use("a", {"ort": "Köln"})]}], run="r"))
    assert written[0]["tool_calls"] == [call("a", '{"ort": "Köln"}')]


def message(kind: MessageType, content: str, role: Role = Role.ASSISTANT, n: int = 0, **payload: object) -> Message:
    return Message("r", n, 0.0, kind, role, content, payload or None)


@pytest.mark.parametrize(
    ("given", "role", "content"),
    [
        (message(MessageType.FINAL_RESULT, "42"), "assistant", "42"),
        (message(MessageType.ERROR, "lost", Role.USER), "user", "lost"),
        (message(MessageType.ERROR, "", Role.USER, code="no_route"), "user", "no_route"),
        (message(MessageType.INPUT_REQUIRED, "which?", Role.USER), "assistant", "which?"),
        (message(MessageType.APPROVAL_REQUIRED, "may I?", Role.SYSTEM), "assistant", "may I?"),
        (message(MessageType.TEXT, "a tool's remark", Role.TOOL), "user", "a tool's remark"),
    ],
)
def test_what_providers_do_not_know_is_written_as_text(given: Message, role: str, content: str) -> None:
    assert to_openai([given]) == [{"role": role, "content": content}]
    assert to_anthropic([given]) == (None, [{"role": role, "content": content}])


def test_a_delta_is_left_out_and_parts_nothing() -> None:
    first, second = normalize([{"role": "user", "content": [text("a"), text("b")]}], run="r")
    messages = [first, message(MessageType.DELTA, "b"), second]
    assert to_openai(messages) == to_anthropic(messages)[1] == [{"role": "user", "content": [text("a"), text("b")]}]


def test_system_texts_come_together_wherever_they_stood() -> None:
    given = ["x", {"role": "system", "content": "one"}, {"role": "system", "content": " "}, "y"]
    system, messages = to_anthropic([*normalize(given, run="r"), part({"type": "document"}, Role.SYSTEM)])
    assert system == "one\n\n[left out: document]"
    assert [each["content"] for each in messages] == ["x", "y"]
    assert to_anthropic([]) == (None, [])


def test_calls_and_results_without_group_are_written_as_one_batch() -> None:
    arguments: Json = {"name": "f", "arguments": "{}"}
    messages = [message(MessageType.TOOL_CALL, "", n=n, call_id=name, **arguments) for n, name in enumerate("ab")]
    messages = repair_pairs(messages)
    assert [each["role"] for each in to_openai(messages)] == ["assistant", "tool", "tool"]
    assert [each["role"] for each in to_anthropic(messages)[1]] == ["assistant", "user"]
    assert [block["is_error"] for block in to_anthropic(messages)[1][1]["content"]] == [True, True]


def test_results_with_a_system_text_between_them_are_still_one_batch() -> None:
    given = [OPENAI[5], OPENAI[6], {"role": "system", "content": "s"}, OPENAI[7]]
    assert len(to_anthropic(normalize(given, run="r"))[1]) == 2


def test_a_result_whose_text_was_cut_is_written_as_cut() -> None:
    (result,) = normalize([{"role": "user", "content": [answer("a", [text("a long text")])]}], run="r")
    result.content = "a lo…"
    assert to_anthropic([result])[1][0]["content"] == [answer("a", "a lo…")]
    assert to_openai([result])[0]["content"] == "a lo…"


def test_an_empty_result_that_was_filled_is_written_as_filled() -> None:
    (result,) = normalize([{"role": "user", "content": [answer("a", "")]}], run="r")
    result.content = "found"
    assert to_anthropic([result])[1][0]["content"] == [answer("a", "found")]


def test_metadata_of_others_is_no_wire() -> None:
    odd: list[object] = ["x", {"part": 3, "message": "y"}]
    for wire in odd:
        message = Message("r", 0, 0.0, MessageType.TEXT, Role.USER, "x", None, {"wire": wire})
        assert to_openai([message])[0]["role"] == to_anthropic([message])[1][0]["role"] == "user"


def test_what_is_written_shares_nothing_with_the_messages() -> None:
    for given in (OPENAI, ANTHROPIC):
        messages = normalize(given, run="r")
        before = copy.deepcopy(messages)
        for written in (*to_openai(messages), *to_anthropic(messages)[1]):
            content: str | list[Json] | None = written["content"]
            calls: list[Json] | None = written.get("tool_calls")
            for part in (*(content if isinstance(content, list) else ()), *(calls or ())):
                for inner in part.values():
                    if isinstance(inner, dict):
                        inner.clear()  # pyright: ignore[reportUnknownMemberType]
                part.clear()
        assert messages == before


def test_a_message_that_was_built_wrong_is_named() -> None:
    broken = message(MessageType.TOOL_CALL, "", call_id="a", name="f")
    for write in (to_openai, to_anthropic):
        with pytest.raises(MessageError) as caught:
            write([message(MessageType.TEXT, "x"), broken])
        assert (caught.value.index, caught.value.field, caught.value.found) == (1, "payload.arguments", None)
