"""How one conversation comes about, as a generator: it asks for texts, and is sent them.

The chat template is cut off inside the user's turn, and the model writes it to its end: prompts as it expects them
(Xu et al. 2406.08464). It then answers, greedily or warmly, and sometimes the user goes on. A base model has no turns:
it continues an opener as plain text.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace

from forerun.core.errors import SpecError
from forerun.engine.results import Choice
from forerun.text.words import TextWords
from forerun.train.domains import Domain

SHORTEST = 4  # tokens of a prompt or an answer that is kept


@dataclass(frozen=True, slots=True)
class Ask:
    """Tokens to go on from, and how. `kept`: the states of this request are wanted, unless another follows."""

    tokens: list[int]
    temperature: float
    top_p: float
    most: int
    seed: int
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation that ended well: ids, the spans [start, stop) of the model's own words, and what was asked."""

    tokens: list[int]
    spans: list[tuple[int, int]]
    prompt: str
    domain: str
    greedy: bool
    system: str = ""
    """What it was told before."""
    unasked: int = 0
    """Turns of the user's own that had no room any more."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How conversations are led."""

    greedy: float = 0.7
    """Share of greedy answers; the others are drawn at `warmth`."""
    warmth: float = 0.8
    again: float = 0.15
    """How often the user goes on after an answer that ended by itself."""
    prompt_tokens: int = 192
    answer_tokens: int = 256


Speech = Generator[Ask, Choice | None, Talk | None]
"""It is sent the answer to what it asks, or None where the context has no room for one."""


@dataclass(slots=True)
class Speaker:
    """Leads conversations with one model."""

    words: TextWords
    manner: Manner = field(default_factory=Manner)

    def speak(self, domain: Domain, opener: str, rng: random.Random) -> Speech:
        """A conversation that begins with `opener`; it returns None if nothing came of it."""
        if not self.words.has_template:
            return (yield from self._plain(domain, opener, rng))
        head: list[dict[str, object]] = [{"role": "system", "content": domain.system}] if domain.system else []
        wrote = yield self._asking(self._opening(head, opener), rng)
        if wrote is None:
            return None
        text = opener + wrote.text
        if wrote.finish_reason != "stop":  # some languages' turns seldom end by themselves
            text = _to_sentence_end(text, len(opener))
        if len(wrote.tokens) < SHORTEST or not text:
            return None
        return (yield from self.answer(domain.name, [text], rng))

    def answer(self, domain: str, turns: Sequence[str], rng: random.Random, system: str = "") -> Speech:
        """The model's answers to these turns, and now and then to one more that it asks itself."""
        greedy = rng.random() < self.manner.greedy
        more = rng.random() < self.manner.again
        messages: list[dict[str, object]] = [{"role": "system", "content": system}] if system else []
        spans: list[tuple[int, int]] = []
        talk, before = None, list[int]()
        left = [turn.strip() for turn in turns if turn.strip()]
        given, answered = len(left), 0
        while left:
            messages.append({"role": "user", "content": left.pop(0)})
            prompt = self._going_on(messages, before)
            got = yield self._answering(prompt, greedy, rng)
            if got is None:
                return talk and replace(talk, unasked=max(0, given - answered))
            answered += 1
            if prompt[: len(before)] != before:  # the template tells earlier turns otherwise once they are past
                talk = None
                spans.clear()
            if len(got.tokens) < SHORTEST and not left:
                break
            before = [*prompt, *got.token_ids]
            spans.append((len(prompt), len(before)))
            talk = Talk(before, list(spans), turns[0].strip(), domain, greedy, system)
            messages.append({"role": "assistant", "content": got.text})
            if not left and more and got.finish_reason == "stop":
                more = False
                wrote = yield self._asking(self._opening(messages, ""), rng)
                if wrote and wrote.finish_reason == "stop" and wrote.text.strip():
                    left = [wrote.text.strip()]
        return talk

    def _going_on(self, messages: list[dict[str, object]], before: list[int]) -> list[int]:
        """Ids of a conversation up to the next answer, which goes on from the ids `before`.

        An answer's ids need not be those of its text, least of all where it was cut: they stay as they were said.
        """
        if not self.words.has_template:
            if len(messages) > 1:
                raise SpecError("this model has no chat template: it takes data of one turn without a system message")
            return self.words.encode(str(messages[0]["content"]), bos=True)
        ids = self.words.chat(messages)
        if not before or ids[: len(before)] == before:
            return ids
        asked, silent = messages[:-2], {**messages[-2], "content": ""}
        begun, whole = self.words.chat(asked), self.words.chat([*asked, silent, messages[-1]])
        if whole[: len(begun)] != begun:
            return ids
        rest = whole[len(begun) :]
        return [*before, *(rest[1:] if rest[:1] == before[-1:] else rest)]  # the end of a turn may have been said

    def _asking(self, begun: list[int], rng: random.Random) -> Ask:
        return Ask(begun, 0.9, 0.95, self.manner.prompt_tokens, rng.getrandbits(62))

    def _answering(self, prompt: list[int], greedy: bool, rng: random.Random) -> Ask:
        warmth = 0.0 if greedy else self.manner.warmth
        return Ask(prompt, warmth, 1.0, self.manner.answer_tokens, rng.getrandbits(62), kept=True)

    def _plain(self, domain: Domain, opener: str, rng: random.Random) -> Speech:
        """Text of a model without turns: an opening drawn at temperature 1, and what the model makes of it."""
        begun = self.words.encode(opener or "\n", bos=True)
        wrote = yield Ask(begun, 0.9, 0.95, self.manner.prompt_tokens // 4, rng.getrandbits(62))
        if wrote is None:
            return None
        greedy = rng.random() < self.manner.greedy
        prompt = [*begun, *wrote.token_ids]
        if wrote.finish_reason == "stop":
            prompt.pop()
        got = yield self._answering(prompt, greedy, rng)
        if got is None or len(got.tokens) < SHORTEST:
            return None
        text = opener + wrote.text
        return Talk(
            [*prompt, *got.token_ids], [(len(prompt), len(prompt) + len(got.tokens))], text, domain.name, greedy
        )

    def _opening(self, messages: Sequence[dict[str, object]], opener: str) -> list[int]:
        """Ids of a conversation that stops inside the user's turn."""
        return self.words.chat([*messages, {"role": "user", "content": opener}], continue_final_message=True)


def _to_sentence_end(text: str, least: int) -> str:
    """`text` up to its last sentence's end past `least` characters; empty if there is none."""
    end = max(text.rfind(mark) for mark in (".", "?", "!", "\n", "。", "？"))
    return text[: end + 1].rstrip() if end >= least else ""
