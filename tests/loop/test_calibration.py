"""Near a limit a nearer estimate decides, which is calibrated by what the provider reports."""

import base64
from random import Random

import pytest

from flyball import Agent, Limits, Result, Usage, tool
from flyball.event import ModelReplied, ModelRequested
from flyball.loop.calibration import CALIBRATION, UNKNOWN_SCALE, Calibration, estimate_likely_tokens
from flyball.models import OpenAIModel
from flyball.request import estimate_tokens
from flyball.store import MemoryStore
from flyball.testing import ModelServer, ScriptDriver, ScriptedModel, assert_honest, call, say, sent

PROMPT = "The governor keeps the engine at its speed, whatever the load on the shaft may be today. " * 190
"""English text of about 3,600 tokens."""


@tool(poll=True)
def look(n: int) -> str:
    """Look."""
    return "All is well with the valve and the boiler. " * n


def read_estimates(result: Result) -> list[int]:
    return [event.estimated_tokens for event in result.events if isinstance(event, ModelRequested)]


def read_inputs(result: Result) -> list[int]:
    return [event.input_tokens for event in result.events if isinstance(event, ModelReplied)]


def test_a_prompt_that_fits_is_not_refused_by_an_estimate_three_times_too_high() -> None:
    model = ScriptedModel(say("It turns.").using(Usage(3_656, 400)))
    assert estimate_tokens(PROMPT) > 8_000
    result = assert_honest(ScriptDriver(Agent(model=model, limits=Limits(tokens=10_000))).run(PROMPT))
    assert (result.stop, result.budgets["tokens"].used) == ("completed", 4_056)
    [request] = model.requests
    assert request.max_output_tokens is not None
    assert request.max_output_tokens > 2_000
    assert 3_656 < read_estimates(result)[0] < 6_000


def test_the_upper_bound_decides_where_there_is_room() -> None:
    model = ScriptedModel(say("It turns.").using(Usage(3_656, 400)))
    result = ScriptDriver(Agent(model=model, limits=Limits(tokens=50_000))).run(PROMPT)
    assert read_estimates(result)[0] >= estimate_tokens(PROMPT)


def test_a_prompt_that_does_not_fit_is_refused_before_any_request() -> None:
    model = ScriptedModel(say("It turns."))
    result = assert_honest(ScriptDriver(Agent(model=model, limits=Limits(tokens=4_000))).run(PROMPT))
    assert (result.stop, result.requests) == ("budget", 0)
    assert "0 used, 800 reserved for the report" in str(result.warning)


def test_later_requests_are_the_reported_input_and_a_margin_on_what_is_new() -> None:
    line = call("look", n=20).using(Usage(3_656, 30))
    model = ScriptedModel(line, say("It turns.").using(Usage(3_900, 9)))
    agent = Agent(model=model, tools=[look], limits=Limits(tokens=12_000))
    result = assert_honest(ScriptDriver(agent).run(PROMPT))
    assert result.completed
    _, second = read_estimates(result)
    assert 3_656 < second < 3_656 + 1.25 * estimate_likely_tokens(look.function(20)) + 100


def test_the_next_run_uses_what_the_provider_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CALIBRATION, "_scales", {})
    lines = [sent(say("It turns."), usage={"prompt_tokens": 3_420, "completion_tokens": 9})] * 2
    with ModelServer(*lines) as server:
        model = OpenAIModel("gpt-test", url=f"{server.url}/v1", key="none", provider="openai", context_tokens=100_000)
        agent = Agent(model=model, limits=Limits(tokens=10_000))
        first, second = agent.run(PROMPT), agent.run(PROMPT)
    [before], [after] = read_estimates(first), read_estimates(second)
    assert read_inputs(second) == [3_420]
    assert 3_420 <= after < before < estimate_tokens(PROMPT)
    assert after < 1.15 * 3_420


def test_a_resumed_run_keeps_the_scale_that_it_was_planned_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CALIBRATION, "_scales", {("house", "m"): [1.0]})
    store = MemoryStore()
    lines = [call("look", n=n).using(Usage(3_656 + 200 * n, 30)) for n in (3, 4, 5)]
    model = ScriptedModel(*lines, grace=say("I looked."), name="m", provider="house")
    agent = Agent(model=model, tools=[look], limits=Limits(tokens=12_000, turns=2), store=store)
    first = agent.run(PROMPT)
    CALIBRATION.note("house", "m", 0.5)
    again = agent.resume(first.run_id, extend={"turns": 5})
    assert read_estimates(again)[:2] == read_estimates(first)[:2]
    assert read_estimates(first)[0] < estimate_tokens(PROMPT)


class TestScales:
    def test_the_highest_of_the_last_reports_counts_with_a_margin(self) -> None:
        calibration = Calibration()
        assert calibration.find_scale("openai", "m") == UNKNOWN_SCALE
        for scale in (0.8, 0.9, 0.7):
            calibration.note("openai", "m", scale)
        assert calibration.find_scale("openai", "m") == pytest.approx(0.99)  # pyright: ignore[reportUnknownMemberType]
        assert calibration.find_scale("anthropic", "m") == UNKNOWN_SCALE

    def test_only_the_newest_reports_count(self) -> None:
        calibration = Calibration()
        for scale in (1.9, *[0.8] * 16):
            calibration.note("openai", "m", scale)
        assert calibration.find_scale("openai", "m") < 1

    def test_fakes_are_not_calibrated(self) -> None:
        calibration = Calibration()
        calibration.note(None, "m", 0.5)
        calibration.note("flyball", "m", 0.5)
        assert calibration.find_scale(None, "m") == calibration.find_scale("flyball", "m") == UNKNOWN_SCALE


DICE = Random(1)
LETTERS = "abcdefghijklmnopqrstuvwxyz"
MEASURED: dict[str, tuple[str, float]] = {
    "prose": (PROMPT, 3_420 / len(PROMPT)),
    "numbers": (" ".join(str(DICE.randint(0, 10**6)) for _ in range(500)), 1.0),
    "hexadecimal digits": ("".join(DICE.choice("0123456789abcdef") for _ in range(3_000)), 0.89),
    "base64": (base64.b64encode(DICE.randbytes(2_000)).decode(), 0.81),
    "random letters": ("".join(DICE.choice(LETTERS) for _ in range(3_000)), 0.6),
    "single letters": ("a b c d e f g " * 100, 0.5),
    "Chinese": ("离心调速器保持蒸汽机的转速恒定。" * 40, 2.13),
}
"""Texts, and the tokens per character that SmolLM2's tokenizer was measured to need."""


@pytest.mark.parametrize("kind", MEASURED)
def test_before_any_report_the_estimate_covers_what_was_measured(kind: str) -> None:
    text, share = MEASURED[kind]
    assert share * len(text) <= estimate_likely_tokens(text) * UNKNOWN_SCALE
