"""How a model's turns end and begin, read off what its chat template writes around messages.

Files often name one end of text and leave out the token that ends a turn: the template writes it behind every answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from forerun.core.errors import SpecError
from forerun.text.chat import render
from forerun.text.tokenizer import Tokenizer

_ASKED, _SAID, _MORE = "Qvx7", "Awz9", "Qvk3"  # words that no template writes
ENDS = (
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_turn|>", "<end_of_turn>", "<|end|>", "<|endofturn|>", "<turn|>",
    "<|END_OF_TURN_TOKEN|>", "<|eot|>", "<|EOT|>", "<EOT>", "[EOT]", "<|turn_end|>", "<|return|>", "<|call|>",
    "<|endoftext|>", "<|end_of_text|>", "<|end_of_sentence|>", "<｜end▁of▁sentence｜>", "<end_of_utterance>", "<|eos|>",
    "<eos>", "</s>",
)  # fmt: skip
"""Control tokens of one meaning in all models: the answer is over."""


@dataclass(frozen=True, slots=True)
class Turns:
    """`ends`: control tokens behind an answer. `tail`: what a prompt ends with where the template writes one more space
    before the answer; empty if it writes none."""

    ends: frozenset[int] = frozenset()
    tail: str = ""


def turns_of(tokenizer: Tokenizer) -> Turns:
    """The turns of a tokenizer's template, and ends by their names."""
    names = {*filter(None, [_end(tokenizer)]), *tokenizer.controls.intersection(ENDS)}
    if "<|return|>" in tokenizer.controls:  # where answers have several parts, <|end|> ends one of them only
        names.discard("<|end|>")
    ids = (tokenizer.control_id(name) for name in names)
    return Turns(frozenset(i for i in ids if i is not None), _tail(tokenizer))


def _end(tokenizer: Tokenizer) -> str | None:
    """The first control token that the template writes behind an answer, or between it and the next question."""
    begins = tokenizer.specials.get("bos_token")
    for more in ([], [_MORE]):
        _, _, behind = _written(tokenizer, [_ASKED, _SAID, *more]).rpartition(_SAID)
        found = (match[0] for match in tokenizer.added.finditer(behind.partition(_MORE)[0]))
        name = next((name for name in found if name in tokenizer.controls and (not more or name != begins)), None)
        if name:
            return name
    return None


def _tail(tokenizer: Tokenizer) -> str:
    _, _, tail = _written(tokenizer, [_ASKED], opens=True).rpartition(_ASKED)
    between = _written(tokenizer, [_ASKED, _SAID]).rpartition(_ASKED)[2].partition(_SAID)[0]
    return tail if between == tail + " " else ""


def _written(tokenizer: Tokenizer, texts: list[str], opens: bool = False) -> str:
    """A conversation of these texts; empty where the template does not tell such."""
    messages = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]
    try:
        return render(tokenizer, messages, add_generation_prompt=opens)
    except SpecError:
        return ""
