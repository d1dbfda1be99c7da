"""What is refused before the first forward: a request must be answerable as it was meant, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from forerun.core.errors import CapacityError, SpecError
from forerun.core.params import SamplingParams
from forerun.core.text import Words
from forerun.engine.step import Parts

Prompt = str | Sequence[int]


def admit(
    prompt: Prompt, params: SamplingParams, parts: Parts, words: Words | None
) -> tuple[list[int], SamplingParams]:
    """Token ids of the prompt, and the parameters with their texts made ids; raises SpecError or CapacityError."""
    spec = parts.target.spec
    if not isinstance(prompt, Sequence) or isinstance(prompt, bytes | bytearray):
        raise SpecError(f"a prompt is a text or a list of token ids, got {prompt!r}")
    ids = _encode(prompt, words, bos=True, what="prompt") if isinstance(prompt, str) else list(prompt)
    if not ids:
        raise SpecError("the prompt is empty and this model has no beginning-of-text token to start from")
    _check_ids(ids, spec.vocab_size, "prompt")
    if len(ids) >= spec.max_len:
        raise CapacityError(
            f"the prompt has {len(ids)} tokens, the context {spec.max_len}: at most {spec.max_len - 1} leave room for "
            "an answer; shorten it"
        )
    _check_ids(params.logit_bias, spec.vocab_size, "logit_bias")
    _check_ids(params.stop_token_ids, spec.vocab_size, "stop_token_ids")
    if params.stop and words is None:
        raise SpecError("stop texts need a tokenizer, which this engine has not; use stop_token_ids")
    if params.stop and words is not None:
        hidden = frozenset[int]().union(*map(words.stop_ids, params.stop))
        params = replace(params, stop_token_ids=params.stop_token_ids | hidden)
    if isinstance(params.prediction, str):
        params = replace(params, prediction=tuple(_encode(params.prediction, words, bos=False, what="prediction")))
    if parts.verify.greedy_only and not params.greedy:
        raise SpecError(f"the verifier {parts.verify.name!r} only knows temperature 0, got {params.temperature:g}")
    return ids, params


def _encode(text: str, words: Words | None, *, bos: bool, what: str) -> list[int]:
    if words is None:
        raise SpecError(f"a {what} as text needs a tokenizer, which this engine has not: give token ids")
    return words.encode(text, bos=bos)


def _check_ids(ids: Sequence[int] | Mapping[int, float] | frozenset[int], size: int, what: str) -> None:
    for token in ids:
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < size:
            raise SpecError(f"{what} holds the token id {token!r}, the vocabulary has 0..{size - 1}")
