from hypothesis import given
from hypothesis import strategies as st

from flyball.wire.sse import EventReader

WORDS = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\r\n\x0b\x0c\x1c\x1d\x1e\x85"))


def read(*chunks: bytes) -> list[bytes]:
    reader = EventReader()
    events = [event for chunk in chunks for event in reader.feed(chunk)] + reader.close()
    assert b"".join(event.raw for event in events) == b"".join(chunks)
    return [event.data for event in events if event.data is not None]


@given(st.lists(WORDS.filter(bool), max_size=5), st.sampled_from(["\n", "\r\n", "\r"]), st.data())
def test_however_a_stream_is_cut_it_says_the_same(texts: list[str], end: str, data: st.DataObject) -> None:
    lines = [f": a comment{end}event: x{end}data: {text}{end}{end}" for text in texts]
    stream = "".join(lines).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert read(*pieces) == [text.encode() for text in texts]


def test_several_lines_of_data_are_one_event() -> None:
    assert read(b"data: one\ndata: two\n\n") == [b"one\ntwo"]


def test_the_space_behind_the_colon_may_be_missing_and_only_one_is_taken() -> None:
    assert read(b"data:one\n\ndata:  two\n\n") == [b"one", b" two"]


def test_an_event_without_data_is_none() -> None:
    assert read(b"event: ping\n\n: nothing\n\nid: 3\n\n") == []


def test_a_last_event_that_is_not_closed_counts() -> None:
    assert read(b"data: one\n\ndata: two") == [b"one", b"two"]
