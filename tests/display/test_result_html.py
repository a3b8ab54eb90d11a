"""Results and limits in a notebook: well-formed, escaped, and short however long the run was."""

from html.parser import HTMLParser

import pytest

from flyball import Agent, Limits, Reserve, Result, govern, tool
from flyball.record import from_record
from flyball.testing import ScriptedModel, call, say

HOSTILE = "<script>alert('x')</script><img src=x onerror=1>"


class Page(HTMLParser):
    """Elements and texts of a page; fails where tags do not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


def show(shown: Result | Limits) -> Page:
    return Page(shown._repr_html_())  # pyright: ignore[reportPrivateUsage]  (notebooks call it)


@tool(poll=True)
def look(place: str) -> str:
    """Look at a place."""
    return f"seen: {place}"


def run(turns: int, place: str = "Oslo", report: str = "I looked.") -> Result:
    model = ScriptedModel.looping(call("look", place=place), grace=say(report))
    return Agent(model=model, tools=[look], limits=Limits(turns=turns, tokens=100_000), settings={}).run("Go.")


class TestResult:
    def test_it_has_the_reason_the_bars_and_the_timeline(self) -> None:
        result = run(3)
        page = show(result)
        assert page.texts[0] == "budget"
        assert result.explain() in page.texts
        assert {"turns", "3 of 3", "tokens", "60 of 100,000", "seconds", "I looked."} <= set(page.texts)
        assert sum(text.startswith("look(place='Oslo'): done: seen: Oslo") for text in page.texts) == 3
        assert "refused: max_agent_iterations_reached" in page.texts

    def test_texts_of_models_and_tools_are_escaped(self) -> None:
        page = show(run(2, place=HOSTILE, report=HOSTILE))
        assert page.tags <= {"div", "b", "table", "tr", "th", "td", "span", "details", "summary"}
        assert page.attributes == {"style"}
        assert HOSTILE in page.texts

    def test_a_long_run_is_shown_in_few_rows(self) -> None:
        short, long = run(40), run(300)
        assert len(show(long).texts) == len(show(short).texts)
        assert any("`result.events` has them all" in text for text in show(long).texts)

    def test_a_long_answer_is_cut(self) -> None:
        assert len(run(2, report="word " * 100_000)._repr_html_()) < 20_000  # pyright: ignore[reportPrivateUsage]

    def test_a_completed_run_of_govern_is_shown(self) -> None:
        with govern(Limits(turns=3)) as governed:
            for turn in governed:
                turn.settle({"input_tokens": 40, "output_tokens": 10})
                governed.complete("42")
        page = show(governed.result())
        assert page.texts[0] == "completed"
        assert {"42", "1 of 3"} <= set(page.texts)

    def test_a_result_that_was_read_from_its_record_is_shown_alike(self) -> None:
        result = run(3)
        assert show(from_record(result.to_dict())).texts == show(result).texts

    def test_child_runs_have_their_reasons(self) -> None:
        helper = Agent(model=ScriptedModel(say("Found.")), name="helper", settings={})
        model = ScriptedModel(call("delegate", tasks=[{"child": "helper", "goal": "Look."}]), say("Done."))
        result = Agent(model=model, children=[helper], settings={}).run("Go.")
        assert [child.stop for child in result.children] == ["completed"]
        assert "1 child run" in show(result).texts

    def test_a_result_without_anything_is_shown(self) -> None:
        assert show(from_record({"stop": "failed"})).texts[0] == "failed"


class TestRepr:
    def test_it_is_one_short_line_with_the_reason_and_the_answer(self) -> None:
        shown = repr(run(3))
        assert shown.startswith("<Result budget (max_agent_iterations_reached), 3 turns, 60 tokens, ")
        assert shown.endswith(" s: 'I looked.'>")

    def test_it_stays_short_for_a_long_answer_and_a_typed_one(self) -> None:
        assert len(repr(run(2, report="word\n" * 1_000))) < 200
        typed = Agent(model=ScriptedModel(say('{"result": [1, 2]}')), output=list[int], settings={}).run("Go.")
        assert repr(typed).endswith(" s: [1, 2]>")


class TestLimits:
    def test_the_repr_has_what_was_set_and_can_be_evaluated(self) -> None:
        limits = Limits(turns=3, tokens=None, usd=0.5, calls={"look": 2}, reserve=Reserve(seconds=5))
        assert repr(limits) == "Limits(turns=3, calls={'look': 2}, tokens=None, usd=0.5, reserve=Reserve(seconds=5))"
        assert eval(repr(limits)) == limits
        assert (repr(Limits()), repr(Reserve())) == ("Limits()", "Reserve()")

    def test_a_notebook_shows_each_limit_and_where_it_comes_from(self) -> None:
        page = show(Limits(turns=3_000, calls={HOSTILE: 2}, tool_seconds={"look": 1.5}, reserve=Reserve(tokens=5)))
        texts = page.texts
        assert texts[texts.index("turns") + 1] == "500"
        assert "clamped from 3,000" in texts[texts.index("turns") + 2]
        assert texts[texts.index("nudges") + 2] == "the default"
        assert f"calls of {HOSTILE}" in texts
        assert texts[texts.index("seconds of look") + 1] == "1.5 s"
        assert "Reserve(tokens=5)" in texts

    def test_invalid_settings_are_told_beside_the_limits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FLYBALL_MAX_ITERATIONS", "many")
        page = show(Limits(tokens=5))
        assert page.texts[0] == "Limits(tokens=5)"
        assert "FLYBALL_MAX_ITERATIONS" in page.texts[1]
