"""The conversations of the conftest, as users of the SDKs for the Responses API and for Gemini write them."""

import base64
from typing import Any

from google.genai import types

QUESTION = "How warm is it in Köln?"
BOTH = "How warm is it in Köln, and how late?"
LINK = "https://example.com/cat.png"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Its name."}},
    "required": ["city"],
    "additionalProperties": False,
}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
ANSWER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "number"}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}


def responses_calls() -> dict[str, dict[str, Any]]:
    """A model that reasons, nothing stored: then its reasoning must be asked for, to be sent back."""
    shared = {"model": "gpt-5.5", "store": False, "include": ["reasoning.encrypted_content"]}
    asked: dict[str, Any] = {**shared, "input": [{"role": "user", "content": QUESTION}]}
    tool = {"type": "function", "name": "weather", "description": "The weather of a city.", "parameters": CITY}
    weather = {**tool, "strict": False}
    now = {"type": "function", "name": "now", "description": "The time.", "parameters": NOTHING, "strict": False}
    offered = {**asked, "tools": [weather, now]}
    dialogue = [
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "How are you?"},
    ]
    answer = {"type": "json_schema", "name": "answer", "schema": ANSWER, "strict": True}
    return {
        "text": {**shared, "input": dialogue},
        "system": {**asked, "instructions": "Be brief."},
        "tools": offered,
        "call_and_result": {
            **asked,
            "input": [*asked["input"], called("call_1", "weather", '{"city": "Köln"}'), result("call_1", "17 °C")],
            "tools": [weather],
        },
        "parallel_calls": {
            **offered,
            "input": [
                {"role": "user", "content": BOTH},
                {"role": "assistant", "content": "I will look."},
                called("call_1", "weather", '{"city": "Köln"}'),
                called("call_2", "now", "{}"),
                result("call_1", "17 °C"),
                result("call_2", "the clock has stopped"),
            ],
        },
        "image_inline": {**shared, "input": [image(f"data:image/png;base64,{PIXEL}")]},
        "image_linked": {**shared, "input": [image(LINK)]},
        "choice_auto": {**offered, "tool_choice": "auto"},
        "choice_required": {**offered, "tool_choice": "required"},
        "choice_none": {**offered, "tool_choice": "none"},
        "choice_one": {**offered, "tool_choice": {"type": "function", "name": "weather"}},
        "one_call_at_a_time": {**offered, "parallel_tool_calls": False},
        "output_schema": {**asked, "text": {"format": answer}},
        "max_tokens": {**asked, "max_output_tokens": 300},
        "streaming": asked,
        "extra": {**asked, "service_tier": "auto"},
    }


def called(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def result(call_id: str, output: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def image(url: str) -> dict[str, Any]:
    parts = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": url, "detail": "auto"},
    ]
    return {"role": "user", "content": parts}


def google_calls() -> dict[str, dict[str, Any]]:
    model = "gemini-2.5-pro"
    asked: dict[str, Any] = {"model": model, "contents": [said("user", QUESTION)]}
    weather = declared("weather", "The weather of a city.", CITY)
    tools = [types.Tool(function_declarations=[weather, declared("now", "The time.", NOTHING)])]
    dialogue = [said("user", "Hello."), said("model", "Hello!"), said("user", "How are you?")]
    city = {"city": "Köln"}
    pixel, link = base64.b64decode(PIXEL), types.Part(file_data=types.FileData(file_uri=LINK, mime_type="image/png"))

    def chosen(mode: str, *names: str) -> dict[str, Any]:
        config = types.FunctionCallingConfig.model_validate(
            {"mode": mode} | ({"allowed_function_names": names} if names else {})
        )
        return {
            **asked,
            "config": configured(tools=tools, tool_config=types.ToolConfig(function_calling_config=config)),
        }

    brief = types.Content(parts=[types.Part(text="Be brief.")])
    return {
        "text": {"model": model, "contents": dialogue},
        "system": {
            **asked,
            "config": configured(system_instruction=brief),
        },
        "tools": {**asked, "config": configured(tools=tools)},
        "call_and_result": {
            "model": model,
            "contents": [
                said("user", QUESTION),
                types.Content(role="model", parts=[asks("call_1", "weather", city)]),
                types.Content(role="user", parts=[answers("call_1", "weather", output="17 °C")]),
            ],
            "config": configured(tools=[types.Tool(function_declarations=[weather])]),
        },
        "parallel_calls": {
            "model": model,
            "contents": [
                said("user", BOTH),
                types.Content(
                    role="model",
                    parts=[types.Part(text="I will look."), asks("call_1", "weather", city), asks("call_2", "now", {})],
                ),
                types.Content(
                    role="user",
                    parts=[
                        answers("call_1", "weather", output="17 °C"),
                        answers("call_2", "now", error="the clock has stopped"),
                    ],
                ),
            ],
            "config": configured(tools=tools),
        },
        "image_inline": {
            "model": model,
            "contents": [shows(types.Part(inline_data=types.Blob(mime_type="image/png", data=pixel)))],
        },
        "image_linked": {"model": model, "contents": [shows(link)]},
        "choice_auto": chosen("AUTO"),
        "choice_required": chosen("ANY"),
        "choice_none": chosen("NONE"),
        "choice_one": chosen("ANY", "weather"),
        "one_call_at_a_time": {**asked, "config": configured(tools=tools)},  # the API has no such choice
        "output_schema": {
            **asked,
            "config": configured(response_mime_type="application/json", response_json_schema=ANSWER),
        },
        "max_tokens": {**asked, "config": configured(max_output_tokens=300)},
        "streaming": asked,
        "extra": {
            **asked,
            "config": types.GenerateContentConfig(
                http_options=types.HttpOptions(
                    headers={"x-team": "blue"}, extra_body={"service_tier": "auto", "odd": [3]}
                )
            ),
        },
    }


def configured(**options: Any) -> types.GenerateContentConfig:
    off = types.AutomaticFunctionCallingConfig(disable=True)
    return types.GenerateContentConfig(automatic_function_calling=off if "tools" in options else None, **options)


def said(role: str, text: str) -> types.Content:
    return types.Content(role=role, parts=[types.Part(text=text)])


def shows(part: types.Part) -> types.Content:
    return types.Content(role="user", parts=[types.Part(text="What is this?"), part])


def asks(call_id: str, name: str, arguments: dict[str, Any]) -> types.Part:
    return types.Part(function_call=types.FunctionCall(id=call_id, name=name, args=arguments))


def answers(call_id: str, name: str, **response: str) -> types.Part:
    return types.Part(function_response=types.FunctionResponse(id=call_id, name=name, response=dict(response)))


def declared(name: str, description: str, schema: dict[str, Any]) -> types.FunctionDeclaration:
    return types.FunctionDeclaration(name=name, description=description, parameters_json_schema=schema)
