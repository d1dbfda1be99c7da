import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.core.errors import SpecError
from forerun.text.stream import TextStream


def run(tokenizer, ids, stops=(), group=1):
    """Feed in groups as decoding rounds do; the events with text, the final text, and whether it stopped."""
    stream = TextStream(tokenizer, tuple(stops))
    events = []
    for first in range(0, len(ids), group):
        stopped = [stream.hear(i) for i in ids[first : first + group]]
        events.append(stream.take())
        if any(stopped):
            break
    events.append(stream.finish())
    assert "".join(events) == stream.text
    return [e for e in events if e], stream.text, stream.stopped


@pytest.mark.parametrize("group", [1, 2, 11, 99])
def test_a_stop_string_early_in_a_long_block(make, group):
    _, text, stopped = run(make.bytes_only, make.letters("xENDabcdefgh"), ["END"], group)
    assert (text, stopped) == ("x", True)


@pytest.mark.parametrize("group", range(1, 9))
def test_characters_are_never_cut(make, group):
    ids = make.letters("好🎉é")
    events, text, _ = run(make.bytes_only, ids, (), group)
    assert text == "好🎉é"
    assert not any("\ufffd" in e for e in events)
    assert len(events) <= -(-len(ids) // group) + 1


@pytest.mark.parametrize("group", range(1, 9))
def test_the_head_of_a_stop_string_does_not_leak(make, group):
    ids = make.letters("The quick brown fox")
    events, text, stopped = run(make.bytes_only, ids, ["own fox"], group)
    assert (text, stopped) == ("The quick br", True)
    assert "".join(events) == text
    assert run(make.bytes_only, ids, ["brown bear"], group)[1:] == ("The quick brown fox", False)


def test_exactly_the_longest_tail_is_held(make):
    stream = TextStream(make.bytes_only, ("abab!", "bc"))
    sent = []
    for byte in b"xababab":
        stream.hear(byte)
        sent.append(stream.take())
    assert sent == ["x", "", "", "", "", "ab", ""]
    assert stream.hear(ord("!"))
    assert stream.text == "xab"
    assert stream.finish() == ""
    assert stream.hear(ord("z"))
    assert stream.text == "xab"


def test_the_first_to_be_complete_wins_and_the_longest_of_those(make):
    assert run(make.bytes_only, list(b"1abcd"), ["abcd", "bc"])[1] == "1a"
    assert run(make.bytes_only, list(b"1abc"), ["bc", "abc"])[1] == "1"


def test_one_token_may_hold_several(make):
    tokenizer = make.of_pieces([b"hello END and END", b"x"])
    assert run(tokenizer, [1, 0, 1], ["END"])[1:] == ("xhello ", True)


def test_broken_ends(make):
    assert run(make.bytes_only, [0xE5, 0xA5])[1] == "\ufffd"
    assert run(make.bytes_only, [0xE5, 0x41, 0xFF])[1] == "\ufffdA\ufffd"


def test_leading_space_and_special_tokens(make):
    tokenizer = make.of_pieces([b"", b" a", b" b"], strip_space=True)
    assert run(tokenizer, [0, 1, 2, 0])[1] == "a b" == tokenizer.decode([0, 1, 2, 0])


def test_empty_stop_strings_are_refused(make):
    with pytest.raises(SpecError, match="empty"):
        TextStream(make.bytes_only, ("a", ""))


@given(st.lists(st.integers(0, 255), max_size=40), st.lists(st.text("ab\ufffdé", min_size=1, max_size=4), max_size=3))
@settings(max_examples=200, deadline=None)
def test_any_bytes_in_any_grouping(make, ids, stops):
    full = make.bytes_only.decode(ids)
    ends = [(full.find(s) + len(s), -len(s)) for s in stops if s in full]
    expected = full if not ends else full[: min(ends)[0] + min(ends)[1]]
    for group in (1, 3, 100):
        assert run(make.bytes_only, ids, stops, group)[1] == expected


@given(st.text("ab", max_size=60), st.lists(st.text("ab", min_size=1, max_size=5), max_size=3))
@settings(max_examples=200, deadline=None)
def test_nothing_sent_is_ever_part_of_a_stop_string(make, text, stops):
    stream = TextStream(make.bytes_only, tuple(stops))
    sent = ""
    for i, byte in enumerate(text.encode(), start=1):
        if stream.hear(byte):
            break
        sent += stream.take()
        held = max((k for s in stops for k in range(len(s)) if text[:i].endswith(s[:k])), default=0)
        assert sent == text[: i - held]
