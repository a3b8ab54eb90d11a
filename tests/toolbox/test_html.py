import time

import pytest
from hypothesis import given
from hypothesis.strategies import lists, sampled_from, text

from flyball.toolbox.html import html_to_text

PIECES = [
    "<",
    ">",
    "</",
    "<!--",
    "-->",
    "<a href=",
    "'",
    '"',
    "</a>",
    "<script",
    "</script>",
    "<p>",
    "<pre>",
    "\n",
    "&#",
    "&amp;",
    " ",
]


def test_blocks_are_lines_and_inline_tags_are_nothing() -> None:
    page = (
        "<html><head><title> A  page </title></head><body><h1>Big</h1>one <b>bold</b>\nword<br/>two<ul><li>x<li>y</ul>"
    )
    assert html_to_text(page) == "A page\nBig\none bold word\ntwo\n- x\n- y"


def test_scripts_styles_and_comments_are_not_read() -> None:
    page = "a<script>if (1 < 2) '</p>'</SCRIPT >b<style>p {}</style>c<!-- <p>no</p> -->d<!doctype html>e<?xml ?>f"
    assert html_to_text(page) == "abcdef"


def test_a_link_stands_behind_its_words_unless_it_leads_nowhere() -> None:
    page = (
        '<a class=x href="/a?b=1&amp;c=2">one</a> <a href=two.html>two</a> <a href="#top">up</a> <a name=x>here</a></a>'
    )
    assert html_to_text(page) == "one (/a?b=1&c=2) two (two.html) up here"


def test_a_listing_keeps_its_lines_and_blanks() -> None:
    assert html_to_text("<p>a\n  b</p><pre>if x:\n    y = '&lt;'\n</pre>  c") == "a b\nif x:\n    y = '<'\nc"


def test_characters_are_what_their_names_say_also_very_strange_ones() -> None:
    assert html_to_text("&eacute;&#233;&#xe9;&copy &unknown; &") == "éé\xe9© &unknown; &"
    assert html_to_text("1 < 2 <3 <>") == "1 < 2 <3 <>"
    assert html_to_text("&#" + "9" * 10_000 + ";").endswith("9;")


@given(lists(sampled_from(PIECES) | text(max_size=5)).map("".join))
def test_any_page_has_a_text(page: str) -> None:
    assert isinstance(html_to_text(page), str)


@pytest.mark.parametrize(
    "piece",
    [
        "<!--",
        "<a '",
        '<a "',
        "<",
        "<p",
        "<script",
        "<script>",
        "</",
        "&#",
        "<a href=",
        "<!",
        "<a href='x",
        '<b "> "',
        "<pre>\n",
    ],
)
def test_a_hostile_page_takes_time_in_proportion(piece: str) -> None:
    began = time.perf_counter()
    html_to_text(piece * (400_000 // len(piece)))
    assert time.perf_counter() - began < 60  # with time that grows with the square it would be many minutes
