"""Assertions about outputs: fields in wrapped results, packets and artifacts."""

from typing import Any

import pytest

from flyball import Agent, Assertions, ConfigError, tool
from flyball.completion.outputs import ArtifactOutput
from flyball.completion.policy import build_nudge
from flyball.progress import Done, Evidence
from flyball.testing import ScriptedModel, call, say


def evidence(*values: object, state: dict[str, Any] | None = None) -> Evidence:
    found = Evidence(state or {})
    for value in values:
        found.add(Done("t", {}, value))
    return found


def wrap_artifacts(**artifacts: Any) -> dict[str, Any]:
    return {"outputs": {"typed_artifacts": artifacts}}


@pytest.mark.parametrize(
    ("value", "is_found"),
    [
        ({"url": "x"}, True),
        ({"data": {"url": "x"}}, True),
        ({"result": {"url": "x"}}, True),
        ('{"data": {"url": "x"}}', True),
        ({"data": {"url": ""}}, False),
        ({"data": {"data": {"url": "x"}}}, False),
        ({"other": {"url": "x"}}, False),
    ],
)
def test_a_required_output_is_found_in_the_result_its_data_and_its_result(value: object, is_found: bool) -> None:
    asked = {"complete_when_any": [{"name": "o", "tools": [{"name": "t", "required_output": ["url"]}]}]}
    assert Assertions.of(asked).check(evidence(value)).complete is is_found


@pytest.mark.parametrize(
    ("value", "is_found"),
    [
        ({"type": "page"}, True),
        ({"data": {"type": "page"}}, True),
        ({"packets": [{"type": "note"}, {"type": "page"}]}, True),
        ({"result": {"packets": ({"type": "page"},)}}, True),
        ({"packets": ["page", {"type": ["page"]}, None]}, False),
        ("page", False),
        ({"type": 1}, False),
    ],
)
def test_a_packet_type_is_found_in_results_and_their_packets(value: object, is_found: bool) -> None:
    findings = Assertions(required_output_packet_types=["page"]).check(evidence(value))
    assert (findings.complete, findings.missing) == (is_found, () if is_found else ("output packet page",))


def test_every_successful_call_leaves_a_tool_result() -> None:
    asked = Assertions(required_output_packet_types=["tool_result"])
    assert (asked.check(evidence()).complete, asked.check(evidence("x")).complete) == (False, True)


@pytest.mark.parametrize(
    ("value", "is_found"),
    [
        (wrap_artifacts(design={"schema": "s/1", "artifact": "Design", "body": {}}), True),
        ({"data": wrap_artifacts(design={"schema": "s/1", "artifact": "Design"})}, True),
        (wrap_artifacts(design={"schema": "s/2", "artifact": "Design"}), False),
        (wrap_artifacts(design={"schema": "s/1"}), False),
        (wrap_artifacts(design={}), False),
        (wrap_artifacts(other={"schema": "s/1", "artifact": "Design"}), False),
    ],
)
def test_an_artifact_must_have_the_required_schema_and_type(value: Any, is_found: bool) -> None:
    rows = [{"output_key": "design", "schema": "s/1", "artifact": "Design"}]
    asked = Assertions.of({"required_artifact_outputs": rows})
    assert asked.check(evidence(value)).complete is is_found
    assert asked.check(evidence(state=value)).complete is is_found
    assert asked.required() == {"required_artifact_outputs": rows}


def test_an_artifact_may_be_named_only() -> None:
    asked = Assertions.of({"required_artifact_outputs": ["design"]})
    assert asked == Assertions(required_artifact_outputs=[ArtifactOutput("design")])
    assert asked.check(evidence(wrap_artifacts(design="x"))).satisfied == ("artifact output design",)


@pytest.mark.parametrize(
    "value",
    ["design", [{}], [{"output_key": ""}], [{"output_key": "a", "schema": 1}], [{"output_key": "a", "kind": "x"}], [1]],
)
def test_a_wrong_artifact_output_is_an_error_that_names_it(value: Any) -> None:
    with pytest.raises(ConfigError, match="required_artifact_outputs"):
        Assertions.of({"required_artifact_outputs": value})


def test_messages_may_name_packets_and_artifacts() -> None:
    asked = {"required_output_packet_types": ["page"], "required_artifact_outputs": ["design"]}
    assertions = Assertions.of({**asked, "messages": {"page": "Write the page.", "design": "Emit the design."}})
    nudge = build_nudge(assertions.check(Evidence({})), "", assertions)
    assert "Write the page." in nudge
    assert "Emit the design." in nudge


def test_a_run_is_nudged_until_its_artifact_exists() -> None:
    @tool
    def emit(body: str) -> dict[str, Any]:
        """Emit the design."""
        return wrap_artifacts(design={"body": body})

    model = ScriptedModel(say("Done."), call("emit", body="x"), say("Now."))
    result = Agent(model=model, tools=[emit], completion={"required_artifact_outputs": ["design"]}).run("Go.")
    assert (result.stop, result.completion["nudge_count"]) == ("completed", 1)
