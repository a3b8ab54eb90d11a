"""A forecast names the limit that is met first, and about when; what is not known is None."""

import pytest

from flyball import Limits, govern
from flyball.budget.forecast import Forecast, Pace, Room, TurnSpend, count_turns, find_forecast


def pace_of(*turns: TurnSpend) -> Pace:
    pace = Pace()
    for spend in turns:
        pace.add(spend)
    return pace


def test_nothing_is_known_before_the_third_turn() -> None:
    rooms = {"tokens": Room(1_000, 200)}
    assert find_forecast(rooms, pace_of()) is None
    assert find_forecast(rooms, pace_of(*[TurnSpend(tokens=100)] * 2)) is None
    assert find_forecast(rooms, pace_of(*[TurnSpend(tokens=100)] * 3)) == Forecast("tokens", 10)


def test_the_limit_that_is_met_first_counts() -> None:
    pace = pace_of(*[TurnSpend(tokens=100, tool_calls=2, seconds=3.0)] * 5)
    rooms = {"turns": Room(50, 5), "tokens": Room(2_000, 500), "tool_calls": Room(9, 10), "seconds": Room(60.0, 15.0)}
    assert find_forecast(rooms, pace) == Forecast("tool_calls", 4)


def test_a_limit_that_is_not_used_is_never_met() -> None:
    pace = pace_of(*[TurnSpend(seconds=1.0)] * 5)
    assert find_forecast({"tool_calls": Room(5, 0), "usd": Room(100, 0)}, pace) is None


def test_money_follows_the_tokens_at_their_price_so_far() -> None:
    pace = pace_of(*[TurnSpend(tokens=100)] * 5)
    assert find_forecast({"usd": Room(1_000, 500)}, pace, tokens_used=500) == Forecast("usd", 10)


def test_turns_that_report_nothing_count_at_what_they_were_charged() -> None:
    assert find_forecast({"tokens": Room(1_000, 500)}, pace_of(*[TurnSpend()] * 5)) == Forecast("tokens", 10)


def test_the_current_turn_is_not_one_of_those_that_are_left() -> None:
    pace = pace_of(*[TurnSpend(tokens=100)] * 5)
    pace.note("turn_started", 0.0)
    assert find_forecast({"tokens": Room(1_000, 500)}, pace) == Forecast("tokens", 9)
    pace.note("model_replied", 0.0, 100)
    assert find_forecast({"tokens": Room(900, 600)}, pace) == Forecast("tokens", 9)
    assert find_forecast({"turns": Room(4, 6)}, pace) == Forecast("turns", 4)


def test_refunded_turns_cost_no_turn() -> None:
    spends = [TurnSpend(turns=0), TurnSpend(turns=1)] * 2
    assert find_forecast({"turns": Room(10, 2)}, pace_of(*spends)) == Forecast("turns", 20)
    assert find_forecast({"turns": Room(10, 0)}, pace_of(*[TurnSpend(turns=0)] * 4)) is None


@pytest.mark.parametrize("place", range(7))
@pytest.mark.parametrize("outlier", [0, 5_000])
def test_one_unusual_turn_does_not_decide(place: int, outlier: int) -> None:
    samples = [100, 104, 98, 101, 99, 103, 97]
    samples[place] = outlier
    assert 8 <= count_turns(1_000, samples) <= 10


@pytest.mark.parametrize("place", range(3))
def test_one_unusual_turn_of_three_does_not_decide(place: int) -> None:
    samples = [100, 100, 100]
    samples[place] = 5_000
    assert count_turns(1_000, samples) == 10


def test_a_conversation_that_grows_meets_the_limit_earlier() -> None:
    growing = [100 * n for n in range(1, 11)]
    assert count_turns(sum(100 * n for n in range(11, 16)), growing) == 5
    assert count_turns(sum(100 * n for n in range(4, 7)), growing[:3]) == 3


def test_turns_that_get_cheaper_do_not_promise_more() -> None:
    assert count_turns(1_000, [500, 400, 300, 200, 100]) == 3


def test_a_limit_that_is_nearly_reached_has_no_turn_left() -> None:
    forecast = find_forecast({"tokens": Room(50, 950)}, pace_of(*[TurnSpend(tokens=100)] * 4))
    assert forecast == Forecast("tokens", 0)
    assert str(forecast) == "tokens will end with this turn"


def test_after_a_limit_was_met_nothing_more_is_forecast() -> None:
    pace = pace_of(*[TurnSpend(tokens=100)] * 5)
    pace.note("grace_started", 0.0)
    assert find_forecast({"tokens": Room(1_000, 500)}, pace) is None
    pace.note("turn_started", 0.0)  # of another conversation
    assert find_forecast({"tokens": Room(1_000, 500)}, pace) == Forecast("tokens", 9)


def test_the_grace_turn_of_a_governed_loop_has_no_forecast() -> None:
    with govern(Limits(tokens=1_000)) as run:
        for turn in run:
            turn.settle({"input_tokens": 50, "output_tokens": 50})
            assert (run.forecast is None) is (turn.grace or turn.number < 4), turn.number


def test_a_forecast_is_a_sentence() -> None:
    assert str(Forecast("usd", 1)) == "money will end after about 1 more turn"
    assert str(Forecast("calls", 1_200)) == "calls will end after about 1,200 more turns"
