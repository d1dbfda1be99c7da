"""How conversations begin, go on and end, with a model whose answers the test writes."""

from __future__ import annotations

import random

import pytest

from forerun.core.errors import SpecError
from forerun.core.seq import SeqStats, Token
from forerun.engine.results import Choice
from forerun.text.from_folder import from_folder
from forerun.text.words import TextWords
from forerun.train.conversation import Manner, Speaker
from forerun.train.domains import Domain, Mix, shipped
from forerun.train.synthesis import before_looping

CHAT = Domain("chat", ("Why",))


@pytest.fixture(scope="module")
def words(tiny_folder):
    return TextWords(from_folder(tiny_folder))


def choice(words, text, reason="stop"):
    ids = words.encode(text, bos=False)
    tokens = tuple(Token(id, False, None) for id in ids)
    return Choice(0, text, tokens, reason, SeqStats())


def talk(speech, answers):
    """Play a conversation; what was asked, and what came of it."""
    asks = [next(speech)]
    try:
        for answer in answers:
            asks.append(speech.send(answer))
    except StopIteration as stop:
        return asks, stop.value
    raise AssertionError("the conversation wants to go on")


def test_a_prompt_is_begun_inside_the_user_s_turn_and_answered(words):
    speech = Speaker(words, Manner(again=0.0, greedy=1.0)).speak(CHAT, "Why", random.Random(0))
    asks, found = talk(speech, [choice(words, " do leaves fall?"), choice(words, "They are old.")])
    assert words.decode(asks[0].tokens).endswith("user\nWhy")
    assert not asks[0].kept
    assert asks[1].tokens == words.chat([{"role": "user", "content": "Why do leaves fall?"}])
    assert asks[1].kept
    assert asks[1].temperature == 0.0
    (start, stop) = found.spans[0]
    assert words.decode(found.tokens[start:stop]) == "They are old."
    assert found.prompt == "Why do leaves fall?"
    assert found.greedy


def test_a_second_question_keeps_the_first_answer(words):
    speech = Speaker(words, Manner(again=1.0, greedy=0.0)).speak(CHAT, "Why", random.Random(0))
    told = [" is it so?", "It is so.", "And then what?", "Then it ends."]
    asks, found = talk(speech, [choice(words, text) for text in told])
    assert [ask.kept for ask in asks] == [False, True, False, True]
    assert asks[1].temperature == 0.8
    assert words.decode(asks[2].tokens).endswith("user\n")
    assert [words.decode(found.tokens[a:b]) for a, b in found.spans][-1] == "Then it ends."


def test_a_turn_that_does_not_end_is_cut_at_a_sentence(words):
    speaker = Speaker(words, Manner(again=0.0))
    speech = speaker.speak(CHAT, "Why", random.Random(0))
    asks, found = talk(speech, [choice(words, " is it so? I ask becau", "length"), choice(words, "It is so.")])
    assert found.prompt == "Why is it so?"
    assert len(asks) == 2
    speech = speaker.speak(CHAT, "Why", random.Random(0))
    _, found = talk(speech, [choice(words, " is it so because", "length")])
    assert found is None


def test_nothing_comes_of_an_answer_that_is_too_short(words):
    speech = Speaker(words, Manner(again=0.0)).speak(CHAT, "Why", random.Random(0))
    _, found = talk(speech, [choice(words, " is it so?"), choice(words, "")])
    assert found is None


def test_a_domain_of_the_user_s_own_is_a_system_message(words):
    mix = Mix.parse("growing vegetables on balconies")
    domain, opener = mix.opener(0.3)
    speech = Speaker(words, Manner(again=0.0)).speak(domain, opener, random.Random(0))
    asks, _ = talk(speech, [choice(words, "How do I grow beans?"), choice(words, "In pots.")])
    assert "growing vegetables on balconies" in words.decode(asks[0].tokens)
    assert "balconies" not in words.decode(asks[1].tokens)


def test_a_file_of_examples_opens_others(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("Who wrote the book about whales?\nIs rain wet in winter?")
    mix = Mix.parse(f"{path}:3,chat")
    assert mix.shares[0][0].openers == ("Who wrote the", "Is rain wet")
    assert mix.shares[0][1] == 0.75
    assert mix.opener(0.0) == (mix.shares[0][0], "Who wrote the")
    assert mix.opener(0.999)[0].name == "chat"


def test_every_shipped_domain_has_openers():
    assert {"chat", "code", "math", "russian"} <= set(shipped())
    for domain in shipped().values():
        assert len(domain.openers) > 10
        assert all(opener == opener.rstrip(" ") for opener in domain.openers), "a word's space comes with the word"


@pytest.mark.parametrize("mix", ["", "nonsense", "code:0", "code:-1", "code:much"])
def test_mixes_that_cannot_be(mix):
    with pytest.raises(SpecError):
        Mix.parse(mix)


def test_a_text_that_goes_in_circles_is_cut():
    tokens = [*range(10), *[7, 8, 9, 4] * 40]
    kept = before_looping(tokens, 10, run=8)
    assert 10 + 8 < kept < 40
    assert before_looping(list(range(300)), 0) == 300
