from dataclasses import dataclass
from typing import Any

import pytest

import flyball.budget.usage
import flyball.request
from flyball import ConfigError, Usage


@dataclass
class Details:
    cached_tokens: int | None = 8


@dataclass
class SdkUsage:
    prompt_tokens: int = 40
    completion_tokens: int = 10
    prompt_tokens_details: Details | None = None


@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        ({"prompt_tokens": 40, "completion_tokens": 10, "total_tokens": 50}, Usage(40, 10)),
        (
            {
                "prompt_tokens": 40,
                "completion_tokens": 10,
                "prompt_tokens_details": {"cached_tokens": 30},
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
            Usage(40, 10, 30, 5),
        ),
        ({"prompt_tokens": 40}, Usage(40, 0)),
        (
            {"input_tokens": 40, "output_tokens": 10, "input_tokens_details": {"cached_tokens": 4}},
            Usage(40, 10, 4),
        ),
        ({"input_tokens": 40, "output_tokens": 10}, Usage(40, 10)),
        (
            {
                "input_tokens": 40,
                "output_tokens": 10,
                "cache_read_input_tokens": 100,
                "cache_creation_input_tokens": 7,
            },
            Usage(147, 10, 100, written=7),
        ),
        ({"input_tokens": 40, "output_tokens": 10, "cache_read_input_tokens": 0}, Usage(40, 10)),
        ({"input_tokens": 40, "output_tokens": 10, "cache_creation_input_tokens": 5}, Usage(45, 10, written=5)),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 50}}, Usage(10, 0, 10)),
        (
            {"prompt_tokens": 50, "prompt_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 15}},
            Usage(50, 0, 30, written=15),
        ),
        (
            {"prompt_tokens": 50, "prompt_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 99}},
            Usage(50, 0, 30, written=20),
        ),
        (
            {
                "input_tokens": 1,
                "output_tokens": 9,
                "cache_read_input_tokens": 0,
                "output_tokens_details": {"thinking_tokens": 4},
            },
            Usage(1, 9, reasoning=4),
        ),
        ({"input": 1, "output": 2, "cached": 1}, Usage(1, 2, 1)),
        ({"input": 9, "output": 2, "cached": 1, "written": 5, "reasoning": 2}, Usage(9, 2, 1, 2, 5)),
        (SdkUsage(), Usage(40, 10)),
        (SdkUsage(prompt_tokens_details=Details()), Usage(40, 10, 8)),
        (SdkUsage(prompt_tokens_details=Details(None)), Usage(40, 10)),
        (Usage(3, 4), Usage(3, 4)),
    ],
)
def test_what_providers_report_is_understood(reported: object, usage: Usage) -> None:
    assert Usage.of(reported) == usage


@pytest.mark.parametrize("found", [None, {}, 5, "40", {"tokens": 3}])
def test_what_is_no_usage_is_refused(found: Any) -> None:
    with pytest.raises(ConfigError, match=r"input_tokens.*output_tokens") as caught:
        Usage.of(found)
    assert caught.value.where == "usage"


@pytest.mark.parametrize("found", [-1, True, 1.5, "4"])
def test_a_count_that_is_none_is_refused_by_name(found: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Usage.of({"input_tokens": 4, "output_tokens": found})
    assert caught.value.where == "usage, output_tokens"
    assert caught.value.found is found


@pytest.mark.parametrize("field", ["input", "output", "cached", "reasoning", "written"])
def test_a_usage_made_by_hand_is_checked_too(field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Usage(**{field: -100})
    assert (caught.value.where, caught.value.found) == (f"usage, {field}", -100)


def test_the_usage_is_still_found_where_it_was() -> None:
    assert flyball.request.Usage is flyball.Usage is flyball.budget.usage.Usage


def test_usages_are_added_field_by_field() -> None:
    assert Usage(1, 2, 3, 4, 5) + Usage(10, 20, 30, 40, 50) == Usage(11, 22, 33, 44, 55)
    assert Usage(3, 4).total == 7
