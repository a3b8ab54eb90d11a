from flyball._internal.text import pluralize, redact, redact_arguments, to_one_line
from flyball.errors import truncate


def test_a_text_is_cut_only_if_it_is_too_long() -> None:
    assert (truncate("steam", 5), truncate("steam", 4), truncate("", 0)) == ("steam", "stea…", "")


def test_one_line_has_no_breaks_and_reads_only_the_start_of_a_huge_text() -> None:
    assert to_one_line("a\n b\t c") == "a b c"
    assert to_one_line("word " * 1_000_000, 9) == "word word…"


def test_one_is_singular_and_every_other_count_is_plural() -> None:
    assert [pluralize(count, "run") for count in (0, 1, 2, 1_000)] == ["0 runs", "1 run", "2 runs", "1,000 runs"]


def test_the_longest_secret_is_redacted_first_and_short_ones_stay() -> None:
    assert redact("secret-longer ab secret", ["secret", "secret-longer", "ab"]) == "*** ab ***"
    assert redact("pass word", ["pass"], 4) == "*** word"


def test_only_sensitive_arguments_are_redacted() -> None:
    assert redact_arguments({"user": "ada", "key": 7}, ("key", "other")) == {"user": "ada", "key": "***"}
