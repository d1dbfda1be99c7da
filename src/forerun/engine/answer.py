"""One answer as its request sees it: a sequence, its text, and what was told of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from forerun.core.seq import Seq
from forerun.core.text import Listener
from forerun.engine.results import Choice, Event


class Told(NamedTuple):
    """How far somebody was told of an answer."""

    tokens: int = 0
    chars: int = 0
    ended: bool = False


NOTHING = Told()


@dataclass(slots=True)
class Answer:
    """A sequence and its decoder; `text` is what is safe to show, `told` how far `step` has told of it."""

    seq: Seq
    ear: Listener | None
    text: str = ""
    told: Told = NOTHING

    @property
    def whole(self) -> Told:
        """All that there is to tell by now."""
        return Told(len(self.seq.output), len(self.text), self.seq.finished)

    def news(self, told: Told) -> Event | None:
        """What is to tell to whoever was told so far, if there is anything."""
        seq = self.seq
        if told.ended or not (seq.finished or len(seq.output) > told.tokens):
            return None
        return Event(seq.id, seq.index, self.text[told.chars :], tuple(seq.output[told.tokens :]), seq.finish_reason)

    def listen(self) -> None:
        """Bring the text up to date; a decoder that fails ends its answer, as any hook of its own that failed."""
        seq = self.seq
        try:
            if self.ear:
                self.text += self.ear.take()
            if seq.error and not seq.finished:
                seq.fail(seq.error)
            if self.ear and seq.finished:
                self.text += self.ear.finish()
        except Exception as error:
            seq.fail(error)

    def replay(self, ear: Listener | None) -> None:
        """Begin to listen anew."""
        self.ear, self.text = ear, ""
        self.seq.replay(ear)

    def choice(self) -> Choice:
        """The answer as a result."""
        self.listen()
        assert self.seq.finish_reason is not None
        return Choice(self.seq.index, self.text, tuple(self.seq.output), self.seq.finish_reason, self.seq.stats)
