"""Events out of bytes that are cut anywhere."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.lab.endpoint.faults import Fault
from forerun.lab.endpoint.sse import Event, Events


def heard(*pieces):
    events = Events()
    found = [event for piece in pieces for event in events.feed(piece)]
    return [event.data for event in (*found, *events.flush())]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_and_every_cut_give_the_same_events(end):
    lines = [b"\xef\xbb\xbfdata: \xd0\xbf\xd1\x80\xe2\x82\xac\xf0\x9f\x98\x80", b"", b": keep-alive", b"", b"id: 7",
             b"event: x", b"data:one", b"data: two", b"data", b"", b"retry: 5", b"", b"data: [DONE]", b""]  # fmt: skip
    whole = end.join([*lines, b""])
    wanted = ["пр€😀", "one\ntwo\n", "[DONE]"]
    assert heard(whole) == wanted
    assert heard(*(bytes([byte]) for byte in whole)) == wanted
    for cut in range(len(whole)):
        assert heard(whole[:cut], whole[cut:]) == wanted


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])), max_size=5),
    st.lists(st.integers(1, 9), min_size=1),
)
def test_what_was_sent_is_what_is_heard(texts, sizes):
    whole = "".join(f"data: {text}\r\n\r\n" for text in texts).encode()
    pieces, at = [], 0
    while at < len(whole):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(whole[at : at + size])
        at += size
    assert heard(*pieces) == texts


def test_an_event_is_given_as_soon_as_its_empty_line_is_there():
    events = Events()
    assert events.feed(b"data: 1\r\n\r") == [Event("1")]  # a lone CR ends a line: waiting for its LF would hold it back
    assert events.feed(b"\ndata: 2\n") == []
    assert events.feed(b"\n") == [Event("2")]


def test_249_events_have_the_name_that_was_given_last_and_errors_need_no_data():
    events = Events()
    said = b"event: a\nevent:b\ndata: 1\n\ndata: 2\n\nevent: error\n\nevent: odd\n\ndata:\n\n"
    assert events.feed(said) == [Event("1", "b"), Event("2"), Event("", "error"), Event("")]


def test_an_end_without_an_empty_line_is_taken():
    assert heard(b"data: 1\n\ndata: [DONE]") == ["1", "[DONE]"]
    assert heard(b": only comments\n\n") == []


def test_bytes_that_are_no_text_and_events_without_end_are_faults():
    with pytest.raises(Fault, match="not UTF-8"):
        heard(b"data: \xff\n\n")
    with pytest.raises(Fault, match="16 MiB"):
        heard(b"data: " + b"x" * (17 << 20))
