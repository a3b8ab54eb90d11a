"""What may be answered to a question: what is not understood means no, or is refused before a run goes on with it."""

from typing import Any

import pytest

from flyball.errors import ConfigError
from flyball.person import Question, Verdict, allow, deny, edit, extend, parse_answers, to_verdict

ODD: list[Any] = [
    Verdict("yes"),  # pyright: ignore[reportArgumentType]
    Verdict(1),  # pyright: ignore[reportArgumentType]
    Verdict(True, 5),  # pyright: ignore[reportArgumentType]
    Verdict(True, arguments='{"path": "b"}'),  # pyright: ignore[reportArgumentType]
    Verdict(True, arguments=["b"]),  # pyright: ignore[reportArgumentType]
    Verdict(True, arguments={1: "b"}),  # pyright: ignore[reportArgumentType]
    Verdict(True, amount="much"),  # pyright: ignore[reportArgumentType]
    Verdict(True, amount=-5),
    Verdict(True, amount=float("nan")),
    Verdict(True, amount=True),
    "yes",
    1,
    {},
]
PLAIN = [allow(), allow("main"), deny("No."), edit(path="b"), extend(5), extend(0.5)]
ASKED = {"call-0": Question("call-0", "May it?"), "turns-2": Question("turns-2", "More?")}


@pytest.mark.parametrize("said", ODD, ids=str)
def test_a_verdict_that_is_not_understood_means_no(said: Any) -> None:
    verdict = to_verdict(said)
    assert verdict.approved is False
    assert "allow()" in verdict.text


@pytest.mark.parametrize("said", [*ODD, None, Verdict(None)], ids=str)
def test_an_answer_that_is_not_understood_is_refused(said: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_answers({"turns-2": True, "call-0": said}, ASKED)
    assert caught.value.where == "resume, answers['call-0']"


@pytest.mark.parametrize("said", PLAIN, ids=str)
def test_what_the_four_words_give_is_taken_as_it_is(said: Verdict) -> None:
    assert to_verdict(said) is said
    assert parse_answers({"call-0": said}, ASKED) == {"call-0": said}


@pytest.mark.parametrize("plain", [True, False])
def test_a_plain_bool_is_read_as_a_verdict(plain: bool) -> None:
    assert to_verdict(plain) == Verdict(plain)
    assert parse_answers({"call-0": plain}, ASKED) == {"call-0": Verdict(plain)}


def test_nothing_said_leaves_the_question_open() -> None:
    assert to_verdict(None) == Verdict(None)


@pytest.mark.parametrize("given", [[], "call-0", None, {"call-9": True}, {0: True}], ids=str)
def test_answers_are_by_the_id_of_an_open_question(given: Any) -> None:
    with pytest.raises(ConfigError, match="resume, answers"):
        parse_answers(given, ASKED)


@pytest.mark.parametrize("amount", [0, -1, True, float("inf"), float("nan"), "5"], ids=str)
def test_more_is_an_amount_above_nothing(amount: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        extend(amount)
    assert caught.value.found is amount
