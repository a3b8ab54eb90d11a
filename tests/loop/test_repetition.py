"""Calls that come again, and calls that go round: a function of what was called and what came of it."""

from collections.abc import Sequence
from itertools import cycle, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.loop.repetition import Loop, Repetition, build_call_key
from flyball.outcome import Failure, Outcome, Success
from flyball.request import Call
from flyball.steadiness import Thresholds

KEYS = {name: (name, "{}") for name in "ABCDE"}


def done(value: str = "same") -> Success:
    return Success(call_id="1", tool="x", content=value)


def failed(kind: str = "ValueError") -> Failure:
    return Failure(call_id="1", tool="x", kind=kind, error="no")


class Model:
    """Calls one tool in each turn, and is told, denied and stopped as a model would be."""

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self.repetition = Repetition(thresholds or Thresholds())
        self.turn = 0

    def calls(self, names: Sequence[str], outcome: Outcome | None = None) -> list[str]:
        return [self._called(KEYS[name], outcome or done()) for name in names]

    def _called(self, key: tuple[str, str], outcome: Outcome) -> str:
        self.turn += 1
        if self.repetition.is_looping(key, self.turn):
            self.repetition.record_denial(self.turn)
            return "stalled" if self.repetition.stalled else "denied"
        loop = self.repetition.record(key, outcome, self.turn)
        return "made" if loop is None else f"{''.join(loop.tools)} x {loop.times}"


class TestLoops:
    @pytest.mark.parametrize(
        ("names", "found"),
        [
            ("AA", "made"),
            ("AAA", "A x 3"),
            ("ABA", "made"),
            ("ABAB", "AB x 2"),
            ("ABCAB", "made"),
            ("ABCABC", "ABC x 2"),
            ("ABCDABC", "made"),
            ("ABCDABCD", "ABCD x 2"),
            ("ABCDEABCDE", "made"),
            ("AABAAB", "AAB x 2"),
            ("BCDAAA", "A x 3"),
            ("EABAB", "AB x 2"),
        ],
    )
    def test_the_last_call_closes_it(self, names: str, found: str) -> None:
        *before, last = Model().calls(names)
        assert last == found
        assert before == ["made"] * len(before)

    def test_a_result_that_changes_is_progress(self) -> None:
        model = Model()
        assert [model.calls("A", done(str(n))) for n in range(20)] == [["made"]] * 20

    def test_after_the_notice_the_call_is_denied_and_then_the_run_ends(self) -> None:
        assert Model().calls("AAAAA")[2:] == ["A x 3", "denied", "stalled"]
        assert Model().calls("ABABAB")[3:] == ["AB x 2", "denied", "stalled"]

    def test_a_loop_is_not_held_against_the_turn_in_which_the_model_is_told(self) -> None:
        repetition = Repetition(Thresholds())
        assert [repetition.record(KEYS["A"], done(), 1) for _ in range(5)] == [None, None, Loop(("A",), 3), None, None]
        assert not repetition.is_looping(KEYS["A"], 1)
        assert repetition.is_looping(KEYS["A"], 2)

    def test_denials_of_the_first_denied_turn_do_not_stall_a_run(self) -> None:
        model = Model()
        model.calls("AAA")
        for _ in range(3):
            model.repetition.record_denial(4)
        assert not model.repetition.stalled
        model.repetition.record_denial(5)
        assert model.repetition.stalled

    def test_another_call_begins_the_count_of_a_loop_anew(self) -> None:
        assert Model().calls("AAAACAAAAA")[3:] == ["denied", "made", "made", "made", "A x 3", "denied", "stalled"]

    def test_a_word_of_the_users_begins_the_count_of_a_loop_anew(self) -> None:
        model = Model()
        model.calls("AAAA")
        model.repetition.reset()
        assert model.calls("B") == ["made"]
        assert not model.repetition.is_looping(KEYS["A"], 99)

    def test_a_poll_never_repeats_itself(self) -> None:
        repetition = Repetition(Thresholds())
        assert [repetition.record(KEYS["A"], None, turn) for turn in range(50)] == [None] * 50

    def test_a_poll_between_equal_calls_is_progress(self) -> None:
        repetition = Repetition(Thresholds())
        for turn in range(50):
            assert repetition.record(KEYS["A"], done(), turn) is None
            assert repetition.record(KEYS["B"], None, turn) is None

    @pytest.mark.parametrize(
        ("thresholds", "names", "found"),
        [
            (Thresholds(same=2), "AA", "A x 2"),
            (Thresholds(same=9, longest=2, rounds=3), "ABABAB", "AB x 3"),
            (Thresholds(same=None), "A" * 30, "made"),
            (Thresholds(rounds=None), "AB" * 30, "made"),
            (Thresholds(same=16, longest=8), "ABCDEABCDE", "ABCDE x 2"),
            (Thresholds(same=16), "A" * 16, "A x 16"),
        ],
    )
    def test_thresholds_may_be_others(self, thresholds: Thresholds, names: str, found: str) -> None:
        assert Model(thresholds).calls(names)[-1] == found

    @given(st.text("ABCDE", max_size=30), st.text("ABCD", min_size=1, max_size=4))
    def test_whatever_goes_round_is_stopped_within_three_rounds_and_two_calls(self, before: str, circle: str) -> None:
        model = Model()
        model.calls(before)
        most = 3 * len(circle) + 2 + len(circle)  # a call of a loop told of before may be denied once first
        assert "stalled" in model.calls("".join(islice(cycle(circle), max(most, 6))))

    @given(st.lists(st.sampled_from("ABCDE"), max_size=60))
    def test_a_loop_is_told_exactly_when_the_end_of_the_list_goes_round(self, names: list[str]) -> None:
        repetition = Repetition(Thresholds())
        for place, name in enumerate(names, 1):
            told = repetition.record(KEYS[name], done(), place)
            tail = names[:place]
            same = len(tail) >= 3 and len(set(tail[-3:])) == 1
            round_ = any(len(tail) >= 2 * n and tail[-n:] == tail[-2 * n : -n] for n in (2, 3, 4))
            assert (told is not None) == (same or round_)
            if told is not None:
                return


class TestDuplicates:
    def test_a_success_answers_an_equal_call(self) -> None:
        repetition, first = Repetition(Thresholds()), done()
        repetition.keep_result(KEYS["A"], first, writes=False)
        assert repetition.find_success(KEYS["A"]) is first
        assert repetition.find_success(("A", "{'x':1}")) is None

    def test_a_failure_answers_no_equal_call(self) -> None:
        repetition = Repetition(Thresholds())
        repetition.keep_result(KEYS["A"], failed(), writes=False)
        assert repetition.find_success(KEYS["A"]) is None

    def test_a_success_before_a_write_or_a_message_of_the_user_answers_no_equal_call(self) -> None:
        repetition = Repetition(Thresholds())
        repetition.keep_result(KEYS["A"], done(), writes=False)
        repetition.keep_result(KEYS["B"], done(), writes=True)
        assert repetition.find_success(KEYS["A"]) is None
        assert repetition.find_success(KEYS["B"]) is not None
        repetition.reset()
        assert repetition.find_success(KEYS["B"]) is None


class TestKeys:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ('{"a": 1, "b": 2}', '{"b":2,"a":1}'),
            ('{"a": {"x": [1, {"p": 1, "q": 2}], "y": null}}', ' {"a": {"y": null, "x": [1, {"q": 2, "p": 1}]}} '),
            ('{"a": "\\u00e9"}', '{"a": "é"}'),
            ('{"a": 1.0}', '{"a": 1.00}'),
            ('{"a": 1}', {"a": 1}),
        ],
    )
    def test_the_order_of_keys_does_not_matter(self, one: object, other: object) -> None:
        assert build_call_key(Call("1", "t", one)) == build_call_key(Call("2", "t", other))  # pyright: ignore[reportArgumentType]

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ('{"a": 1}', '{"a": 1.0}'),
            ('{"a": 1}', '{"a": true}'),
            ('{"a": 1}', '{"a": "1"}'),
            ('{"a": null}', '{"a": "None"}'),
            ('{"a": [1, 2]}', '{"a": [2, 1]}'),
            ('{"a": "x"}', '{"a": "x "}'),
            ("{}", "[]"),
            ('{"a"', '{"a'),
            ('{"a": ["b", "c"]}', '{"a": ["b\', \'c"]}'),
        ],
    )
    def test_calls_with_different_arguments_have_different_keys(self, one: str, other: str) -> None:
        assert build_call_key(Call("1", "t", one)) != build_call_key(Call("2", "t", other))

    def test_calls_of_two_tools_have_different_keys(self) -> None:
        assert build_call_key(Call("1", "t", "{}")) != build_call_key(Call("1", "u", "{}"))

    @pytest.mark.parametrize("arguments", ["", "[" * 100_000, '{"a": ' * 5_000, "1" * 10_000, '{"a": 1} x', "\ud800"])
    def test_what_cannot_be_read_is_equal_to_itself(self, arguments: str) -> None:
        assert build_call_key(Call("1", "t", arguments)) == build_call_key(Call("2", "t", arguments))


def test_the_same_failure_is_told_once() -> None:
    repetition = Repetition(Thresholds())
    assert [repetition.record_failure(KEYS["A"], failed()) for _ in range(4)] == [False, True, False, False]
    assert not repetition.record_failure(KEYS["A"], failed("KeyError"))
