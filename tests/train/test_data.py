"""Data of the user's own: its forms, what is kept of them, and what is said of the rest."""

from __future__ import annotations

import json
import random

import pytest

from forerun.core.errors import LoadError
from forerun.core.seq import SeqStats, Token
from forerun.engine.results import Choice
from forerun.text.from_folder import from_folder
from forerun.text.words import TextWords
from forerun.train.conversation import Manner, Speaker
from forerun.train.data import own_data

OPENAI = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Why?"},
    {"role": "assistant", "content": "Because."},
    {"role": "user", "content": "And then?"},
]
SHARED = [{"from": said, "value": text} for said, text in (("human", "Why?"), ("gpt", "So."), ("human", "And then?"))]
TWO = ("", ("Why?", "And then?"))
BRIEF = ("Be brief.", ("Why?", "And then?"))


def read(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return own_data([path])


def said(data):
    return [(one.system, one.turns) for one in data.conversations]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"messages": OPENAI}, BRIEF),
        ({"conversations": SHARED}, TWO),
        ({"conversations": OPENAI}, BRIEF),
        ({"conversation": SHARED}, TWO),
        ({"conversations": [{"from": "system", "value": "Be brief."}, *SHARED]}, BRIEF),
        ({"system": "Be brief.", "conversations": SHARED}, BRIEF),
        ({"messages": [{"role": "developer", "content": "Be brief."}, *OPENAI[1:]]}, BRIEF),
        ({"messages": [OPENAI[0], {"role": "user", "content": [{"type": "text", "text": "Why?"}]}, OPENAI[3]]}, BRIEF),
        ({"conversations": ["Why?", "So.", "And then?"]}, TWO),
        ({"turns": ["Why?", "And then?"]}, TWO),
        ({"prompt": "Why?", "response": "So."}, ("", ("Why?",))),
        ({"prompt": "Why?", "completion": "So."}, ("", ("Why?",))),
        ({"prompt": OPENAI, "completion": OPENAI[2:3]}, BRIEF),
        ({"prompt": ["Why?", "And then?"]}, TWO),
        ({"instruction": "Why?", "input": "The sky.", "output": "So."}, ("", ("Why?\n\nThe sky.",))),
        ({"system_prompt": "Be brief.", "question": "Why?", "answer": "So."}, ("Be brief.", ("Why?",))),
        ({"text": "Why?"}, ("", ("Why?",))),
        ("Why?", ("", ("Why?",))),
        (OPENAI, BRIEF),
        (SHARED, TWO),
    ],
)
def test_227_the_forms_that_data_has(value, found, tmp_path):
    lines, array = json.dumps(value) + "\n" + json.dumps({"text": "Last."}), json.dumps([value, {"text": "Last."}])
    for name, text in (
        ("a.jsonl", lines),
        ("b.json", array),
        ("c.jsonl", array),
        ("d.json", json.dumps([value], indent=2)),
    ):
        assert said(read(tmp_path, name, text))[0] == found, name
    if isinstance(value, dict):
        assert said(read(tmp_path, "one.json", json.dumps(value, indent=1))) == [found]


def test_227_tables_are_read_by_row(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for number, (column, value, found) in enumerate(
        [("messages", OPENAI, BRIEF), ("conversations", SHARED, TWO), ("prompt", "Why?", ("", ("Why?",)))]
    ):
        path = tmp_path / f"{number}.parquet"
        parquet.write_table(pyarrow.Table.from_pylist([{column: value, "id": 1}, {column: value, "id": 1}]), path)
        assert said(own_data([path])) == [found, found]
    (tmp_path / "bad.parquet").write_text("no table")
    with pytest.raises(LoadError, match=r"bad\.parquet cannot be read as parquet"):
        own_data([tmp_path / "bad.parquet"])


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl.gz", "x.arrow", "x", "x.md"])
def test_326_other_forms_are_refused_by_name(name, tmp_path):
    (tmp_path / name).write_text("Why?")
    with pytest.raises(LoadError, match=r"data is read from \.jsonl, \.json, \.parquet, \.txt"):
        own_data([tmp_path / name])


def test_326_what_is_left_out_is_counted_and_said(tmp_path):
    lines = [
        {"messages": OPENAI},
        {"messages": [{"role": "assistant", "content": "Hello."}]},
        {"messages": [*OPENAI, {"role": "tool", "content": "7"}, {"role": "user", "content": " "}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
        {"other": 1},
        {"messages": [*OPENAI, {"role": "system", "content": "Be long."}]},
    ]
    data = read(tmp_path, "mine.jsonl", "\n".join([*map(json.dumps, lines), "{broken"]))
    assert said(data) == [BRIEF] * 3
    told = "\n".join(data.notes)
    assert "4 of 7 records are left out: line 2: field 'messages': no user says anything" in told
    assert "and 1 more" in told
    for what in ("1 messages of the role tool", "1 empty messages", "1 system messages behind a user's first turn"):
        assert f"{what} left out" in told
    assert data.asked == "3 conversations of mine.jsonl"
    with pytest.raises(LoadError, match="holds no conversation: the file: no prompt: one of the fields"):
        read(tmp_path, "none.jsonl", '{"other": 1}')
    with pytest.raises(LoadError, match="no text"):
        read(tmp_path, "binary.txt", "a\0b")


def test_326_all_turns_arrive_under_their_system_message(tiny_folder):
    """Answers that are cut at their length or are very short do not end a conversation that the user goes on with."""
    words = TextWords(from_folder(tiny_folder))
    speech = Speaker(words, Manner(again=0.0)).answer(
        "own", ["Why?", "And then?", "So?"], random.Random(0), "Be brief."
    )
    asks = [next(speech)]
    try:
        for text, reason in (("Because it is cut he", "length"), ("No", "stop"), ("That is all.", "stop")):
            tokens = tuple(Token(id, False, None) for id in words.encode(text, bos=False))
            asks.append(speech.send(Choice(0, text, tokens, reason, SeqStats())))
    except StopIteration as stop:
        talk = stop.value
    told = words.decode(talk.tokens)
    assert all(text in told for text in ("Be brief.", "Why?", "Because it is cut he", "And then?", "No", "So?", "all."))
    assert [words.decode(talk.tokens[a:b]) for a, b in talk.spans] == ["Because it is cut he", "No", "That is all."]
    assert all(ask.tokens == talk.tokens[: len(ask.tokens)] for ask in asks)
    assert talk.system == "Be brief."


def test_326_turns_without_room_are_counted(tiny_folder):
    words = TextWords(from_folder(tiny_folder))
    speech = Speaker(words, Manner(again=0.0)).answer("own", ["Why?", "And then?", "So?"], random.Random(0))
    next(speech)
    tokens = tuple(Token(id, False, None) for id in words.encode("Because.", bos=False))
    speech.send(Choice(0, "Because.", tokens, "stop", SeqStats()))
    with pytest.raises(StopIteration) as stop:
        speech.send(None)
    assert stop.value.value.unasked == 2
    assert words.decode(stop.value.value.tokens).endswith("Because.")
