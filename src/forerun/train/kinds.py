"""What each kind of head is taught with: its config for a target, its start, its lesson, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from forerun.core.errors import SpecError, unknown
from forerun.models.heads.config import HeadConfig, Kind, MedusaConfig, RecurrentConfig
from forerun.models.heads.head import Head
from forerun.train.corpus import Corpus
from forerun.train.ends import Ends, draft_words
from forerun.train.losses import check_loss
from forerun.train.medusa import MedusaLesson
from forerun.train.parallel import ParallelLesson
from forerun.train.regression import RegressionLesson
from forerun.train.start import carried, medusa_start, recurrent_start
from forerun.train.trainer import Lesson
from forerun.train.unrolled import UnrolledLesson

_STEPS: dict[str, tuple[int, float]] = {"eagle3": (5, 0.8), "p-eagle": (6, 0.8), "mtp": (4, 0.7)}
"""Unrolled steps or depths, and how much less each weighs than the one before."""
AUTO_VOCAB = 16384
HEADS: tuple[Kind, ...] = ("eagle", "eagle3", "p-eagle", "medusa", "mtp")


@dataclass(frozen=True, slots=True)
class Recipe:
    """What may be chosen of a head's making. None is the kind's own default."""

    kind: Kind
    draft_vocab: int | Literal["auto"] | None = "auto"
    """Words that it can guess; None is all, auto 16384 where the target has more."""
    own_end: bool | None = None
    """Whether the vocabulary's end is learnt too (else it is the target's)."""
    layers: int = 1
    steps: int | None = None
    """Unrolled steps, Medusa heads, or P-EAGLE's depths."""
    decay: float | None = None
    loss: str = "kl"
    seed: int = 0
    begun: Head | None = None
    """What has learnt already: the start, as far as its tensors have a place in this kind."""


@dataclass(frozen=True, slots=True)
class Pupil:
    """A head to be trained: parameters float32 by name, what teaches them, and what makes a head of them."""

    config: HeadConfig
    weights: dict[str, Tensor]
    lesson: Lesson
    finish: Callable[[Mapping[str, Tensor]], Head]


def pupil(recipe: Recipe, corpus: Corpus, ends: Ends) -> Pupil:
    """A head of that kind at its start; SpecError for a draft vocabulary larger than the target's and the like."""
    if recipe.kind not in HEADS:
        raise unknown("kind of head", recipe.kind, HEADS)
    check_loss(recipe.loss)
    vocab = ends.config.vocab_size
    size = min(AUTO_VOCAB, vocab) if recipe.draft_vocab == "auto" else recipe.draft_vocab or vocab
    if not 1 <= size <= vocab:
        raise SpecError(f"a draft vocabulary has from 1 to the target's {vocab} words, got {size}")
    begun = recipe.begun if recipe.draft_vocab == "auto" else None
    if begun and (begun.kind == recipe.kind or begun.words is not None):
        words = begun.words
    else:
        words = draft_words(_counts(corpus, vocab), size)
    made = _medusa if recipe.kind == "medusa" else _recurrent
    return made(recipe, corpus, ends, words)


def _medusa(recipe: Recipe, corpus: Corpus, ends: Ends, words: Tensor | None) -> Pupil:
    model = ends.config
    config = MedusaConfig(
        vocab_size=model.vocab_size, target_size=model.hidden_size,
        draft_vocab=model.vocab_size if words is None else len(words), count=recipe.steps or 3,
    )  # fmt: skip
    weights = medusa_start(config, ends, words, recipe.own_end is not False)
    if recipe.begun:
        weights |= carried(weights, recipe.begun, recipe.begun.floats, words)
    lesson = MedusaLesson(config, ends, words, recipe.decay or 0.8, recipe.loss)

    def finish(w: Mapping[str, Tensor]) -> Head:
        return Head(config, detached(w), words, corpus.facts.fingerprint)

    return Pupil(config, weights, lesson, finish)


def _recurrent(recipe: Recipe, corpus: Corpus, ends: Ends, words: Tensor | None) -> Pupil:
    model, facts, kind = ends.config, corpus.facts, recipe.kind
    taps = facts.taps[:-1] if kind in ("eagle3", "p-eagle") else ()
    if kind in ("eagle3", "p-eagle") and not taps:
        raise SpecError(f"{kind} reads layers of the target that this corpus did not capture: taps {facts.taps}")
    if kind == "eagle":
        words = None  # its end is the target's, as a whole
    config = RecurrentConfig(
        kind=kind, vocab_size=model.vocab_size, target_size=model.hidden_size,
        draft_vocab=model.vocab_size if words is None else len(words), hidden_size=model.hidden_size,
        intermediate_size=model.intermediate_size, heads=model.heads, kv_heads=model.kv_heads, head_dim=model.head_dim,
        norm_eps=model.norm_eps, rope=model.rope, max_len=model.max_len, taps=taps, layers=recipe.layers,
        mask_id=0 if kind == "p-eagle" else None,
    )  # fmt: skip
    if recipe.begun and recipe.begun.kind == kind:
        config = _as_begun(recipe.begun, config)
    columns = slice(0, config.features) if taps else slice(-config.features, None)
    scale = torch.ones(config.features) if kind == "mtp" else _scale(corpus, columns)
    own_end = kind != "eagle" and (taps != () if recipe.own_end is None else recipe.own_end)
    weights = recurrent_start(config, ends, words, recipe.seed, own_end)
    if recipe.begun:
        weights |= carried(weights, recipe.begun, partial(unfolded, recipe.begun, scale), words)
    common: dict[str, Any] = {
        "config": config, "ends": ends, "words": words, "scale": scale, "columns": columns, "loss": recipe.loss,
    }  # fmt: skip
    lesson: Lesson
    if kind == "eagle":
        lesson = RegressionLesson(**common)
    else:
        steps, decay = _STEPS[kind]
        cls = ParallelLesson if kind == "p-eagle" else UnrolledLesson
        lesson = cls(**common, steps=recipe.steps or steps, decay=recipe.decay or decay)

    def finish(w: Mapping[str, Tensor]) -> Head:
        return Head(config, folded(config, detached(w), scale), words, facts.fingerprint)

    return Pupil(config, weights, lesson, finish)


def detached(w: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies that no gradient goes into."""
    return {name: value.detach().clone() for name, value in w.items()}


def folded(c: RecurrentConfig, w: dict[str, Tensor], scale: Tensor) -> dict[str, Tensor]:
    """Weights over features / scale as weights over features themselves."""
    if c.kind == "eagle":
        fc = w["fc.weight"].clone()
        fc[:, c.hidden_size :] /= scale
        return {**w, "fc.weight": fc}
    if c.kind == "mtp":
        return w  # its features are normalised, and its own stand in for them
    found = {**w, "fc.weight": w["fc.weight"] / scale}
    if "mask_hidden" in w:
        found["mask_hidden"] = w["mask_hidden"] * scale
    return found


def unfolded(head: Head, scale: Tensor, name: str) -> Tensor:
    """A tensor of a finished head as training has it: over features / scale. The inverse of `folded`."""
    value = head.floats(name)
    if head.kind == "eagle" and name == "fc.weight":
        value[:, -len(scale) :] *= scale
    elif head.kind in ("eagle3", "p-eagle"):
        value = value * scale if name == "fc.weight" else value / scale if name == "mask_hidden" else value
    return value


def _as_begun(begun: Head, ours: RecurrentConfig) -> RecurrentConfig:
    """The config of a head of the same kind that is taught on: its own, for the draft words of now."""
    c = begun.config
    assert isinstance(c, RecurrentConfig)
    if c.own_embedding or c.taps != ours.taps:
        what = "an embedding of its own" if c.own_embedding else f"taps {c.taps}, the corpus captured {ours.taps}"
        raise SpecError(f"that head cannot be taught on here: it has {what}")
    return replace(c, draft_vocab=ours.draft_vocab)


def _counts(corpus: Corpus, vocab: int) -> Tensor:
    """How often each word was said by the target."""
    counts = torch.zeros(vocab, dtype=torch.long)
    for place in corpus:
        sample = corpus.load(place)
        counts += torch.bincount(sample.tokens[sample.answered].long(), minlength=vocab)
    return counts


def _scale(corpus: Corpus, columns: slice, tokens: int = 8192) -> Tensor:
    """Root mean square of each channel over answered tokens, bfloat16."""
    squares, count = torch.zeros(1), 0
    for place in corpus:
        sample = corpus.load(place)
        states = sample.states[sample.answered[:-1], columns].float()
        squares, count = squares + states.square().sum(0), count + len(states)
        if count >= tokens:
            break
    return (squares / max(1, count)).sqrt().clamp_min(1e-3)
