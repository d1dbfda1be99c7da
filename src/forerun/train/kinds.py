"""What each kind is taught with: its config for a target, its start, its lesson, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from forerun.core.errors import SpecError, unknown
from forerun.models.config import ModelConfig
from forerun.models.heads.config import Kind, MedusaConfig, RecurrentConfig
from forerun.models.heads.head import Head, Stored
from forerun.train.corpus import Corpus
from forerun.train.decoder import Decoder, weights_of
from forerun.train.draft import Cut, DraftLesson, kept_layers
from forerun.train.ends import Ends, draft_words
from forerun.train.losses import check_loss
from forerun.train.made import MadeHead, MadePair
from forerun.train.medusa import MedusaLesson
from forerun.train.news import NOBODY, News, Watch
from forerun.train.parallel import ParallelLesson
from forerun.train.recipe import TAUGHT, Pupil, Recipe, detached, mark_of
from forerun.train.regression import RegressionLesson
from forerun.train.start import carried, medusa_start, recurrent_start
from forerun.train.trainer import Lesson
from forerun.train.tuned import LATE, TARGET_RATE, TunedLesson
from forerun.train.unrolled import UnrolledLesson

_STEPS: dict[str, tuple[int, float]] = {"eagle3": (5, 0.8), "p-eagle": (6, 0.8), "mtp": (4, 0.7)}
"""Unrolled steps or depths, and how much less each weighs than the one before."""
AUTO_VOCAB = 16384
_DRAFT_LAYERS = 4
_DRAFT_RATE = 0.25  # of the rate that suits heads: its layers have learnt before


_HEEDED: dict[str, frozenset[str]] = {
    "eagle": frozenset(("layers",)),
    "draft": frozenset(("layers",)),
    **dict.fromkeys(("medusa", "medusa2"), frozenset(("draft_vocab", "steps", "decay", "own_end", "keep_end"))),
    **dict.fromkeys(
        ("eagle3", "p-eagle", "mtp"), frozenset(("draft_vocab", "steps", "decay", "own_end", "keep_end", "layers"))
    ),
}
"""Kind -> what of a recipe it heeds, beside its loss, seed and start."""


_SAID = {"steps": "unrolled steps or heads"}
"""What of a recipe is called otherwise by those who ask for it."""


def check(recipe: Recipe, model: ModelConfig, taps: tuple[int, ...]) -> None:
    """SpecError for a recipe that cannot be followed with a corpus of these layers, the last one left out."""
    if recipe.kind not in TAUGHT:
        raise unknown("kind of head", recipe.kind, TAUGHT)
    check_loss(recipe.loss)
    for item in fields(Recipe):
        known = item.name in ("kind", "loss", "seed", "begun") or item.name in _HEEDED[recipe.kind]
        if not known and getattr(recipe, item.name) != item.default:
            raise SpecError(f"{recipe.kind} has no {_SAID.get(item.name, item.name.replace('_', ' '))} to choose")
    for name in ("layers", "steps", "draft_vocab"):
        value = getattr(recipe, name)
        if isinstance(value, int) and value < 1:
            raise SpecError(f"{_SAID.get(name, name.replace('_', ' '))} must be at least 1, got {value}")
    _vocab_size(recipe, model.vocab_size)
    if recipe.kind == "draft":
        kept_layers(model, recipe.layers or _DRAFT_LAYERS)
    if recipe.keep_end and (recipe.begun is None or not recipe.begun.own_end or recipe.draft_vocab != "auto"):
        raise SpecError("to keep an end, begin from a head that has one of its own, and with its words")
    if recipe.keep_end and recipe.own_end is False:
        raise SpecError("an end of the head's own is kept or there is none: --keep-end or --no-own-end")
    if begun := recipe.begun:
        c = begun.config
        if recipe.kind == "draft":
            raise SpecError("a draft model begins from the target's own layers, not from a head")
        if isinstance(c, RecurrentConfig) and recipe.layers not in (None, c.layers) and begun.kind == recipe.kind:
            raise SpecError(f"the head that it begins from has {c.layers} layers: leave --layers out")
        if isinstance(c, RecurrentConfig) and (c.own_embedding or c.windows or not c.own_mask):
            raise SpecError(
                "a head with an embedding of its own, with attention windows, or with the target's embedding for its "
                "mask cannot be taught on here"
            )
        if c.taps and recipe.kind in ("eagle3", "p-eagle") and c.taps != taps:
            raise SpecError(f"the head that it begins from reads layers {c.taps}, the corpus has {taps}: give --taps")


def pupil(recipe: Recipe, corpus: Corpus, ends: Ends, watch: Watch = NOBODY) -> Pupil:
    """What is to be taught, at its start; SpecError for what `check` refuses."""
    check(recipe, ends.config, corpus.facts.taps[:-1])
    if recipe.kind == "draft":
        return _draft(recipe, corpus, ends)
    said = Said.of(corpus, ends.config.vocab_size, watch)
    words = _words(recipe, said, ends.config.vocab_size)
    if recipe.kind in ("medusa", "medusa2"):
        return _medusa(recipe, corpus, ends, words)
    return _recurrent(recipe, corpus, ends, words, said)


def _words(recipe: Recipe, said: Said, vocab: int) -> Tensor | None:
    """The draft words; None is all."""
    size = _vocab_size(recipe, vocab)
    begun = recipe.begun if recipe.draft_vocab == "auto" else None
    if begun and (begun.kind == recipe.kind.removesuffix("2") or begun.words is not None):
        return begun.words
    return draft_words(said.counts, size)


def _vocab_size(recipe: Recipe, vocab: int) -> int:
    size = min(AUTO_VOCAB, vocab) if recipe.draft_vocab == "auto" else recipe.draft_vocab or vocab
    if not 1 <= size <= vocab:
        raise SpecError(f"a draft vocabulary has from 1 to the target's {vocab} words, got {size}")
    return size


def _draft(recipe: Recipe, corpus: Corpus, ends: Ends) -> Pupil:
    cut = Cut(ends.source, kept_layers(ends.config, recipe.layers or _DRAFT_LAYERS))
    weights = cut.weights(corpus, ends)
    return Pupil(
        weights, DraftLesson(Decoder(cut.config()), ends, recipe.loss), cut.made, dict.fromkeys(weights, _DRAFT_RATE)
    )


def _medusa(recipe: Recipe, corpus: Corpus, ends: Ends, words: Tensor | None) -> Pupil:
    model = ends.config
    config = MedusaConfig(
        vocab_size=model.vocab_size, target_size=model.hidden_size,
        draft_vocab=model.vocab_size if words is None else len(words), count=recipe.steps or 3,
    )  # fmt: skip
    weights = medusa_start(config, ends, words, recipe.own_end is not False)
    if recipe.begun:
        weights |= carried(weights, recipe.begun, recipe.begun.floats, words)
    decay = recipe.decay or 0.8

    kept = _kept(recipe, weights)

    def head(w: Mapping[str, Tensor]) -> Head:
        return Head(config, {**detached({n: w[n] for n in weights}), **kept}, words, corpus.facts.fingerprint)

    still = dict.fromkeys(kept, 0.0)
    if recipe.kind == "medusa":
        lesson = MedusaLesson(config, ends, words, decay, recipe.loss)
        return Pupil(weights, lesson, lambda w: MadeHead(head(w)), still, mark=mark_of(words))
    whole = Cut(ends.source, tuple(range(model.layers)))
    of_target = weights_of(ends.source.tensors, {n: n for n in range(model.layers)})
    return Pupil(
        weights | of_target,
        TunedLesson(config, Decoder(model), ends, words, decay, recipe.loss),
        lambda w: MadePair(whole.made({name: w[name] for name in of_target}), head(w)),
        dict.fromkeys(of_target, TARGET_RATE) | still,
        LATE,
        mark_of(words),
    )


def _recurrent(recipe: Recipe, corpus: Corpus, ends: Ends, words: Tensor | None, said: Said) -> Pupil:
    model, facts, kind = ends.config, corpus.facts, cast(Kind, recipe.kind)
    taps = facts.taps[:-1] if kind in ("eagle3", "p-eagle") else ()
    if kind in ("eagle3", "p-eagle") and not taps:
        raise SpecError(f"{kind} reads layers of the target that this corpus did not capture: taps {facts.taps}")
    if kind == "eagle":
        words = None  # its end is the target's, as a whole
    config = RecurrentConfig(
        kind=kind, vocab_size=model.vocab_size, target_size=model.hidden_size,
        draft_vocab=model.vocab_size if words is None else len(words), hidden_size=model.hidden_size,
        intermediate_size=model.intermediate_size, heads=model.heads, kv_heads=model.kv_heads, head_dim=model.head_dim,
        norm_eps=model.norm_eps, rope=model.rope, max_len=model.max_len, taps=taps, layers=recipe.layers or 1,
        mask_id=said.unsaid() if kind == "p-eagle" else None, norm_output=kind == "mtp",
    )  # fmt: skip
    if recipe.begun and recipe.begun.kind == kind:
        config = replace(cast(RecurrentConfig, recipe.begun.config), draft_vocab=config.draft_vocab)
    columns = slice(0, config.features) if taps else slice(-config.features, None)
    normed = kind == "mtp" or config.norm_before_fc or config.fc_norm  # what is normalised anyway needs no scale
    scale = torch.ones(config.features) if normed else _scale(corpus, columns)
    own_end = kind != "eagle" and (taps != () or recipe.keep_end if recipe.own_end is None else recipe.own_end)
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

    kept = _kept(recipe, weights)

    def finish(w: Mapping[str, Tensor]) -> MadeHead:
        return MadeHead(Head(config, {**folded(config, detached(w), scale), **kept}, words, facts.fingerprint))

    return Pupil(weights, lesson, finish, dict.fromkeys(kept, 0.0), mark=mark_of(words, scale))


def _kept(recipe: Recipe, weights: Mapping[str, Tensor]) -> dict[str, Stored]:
    """Vocabulary ends of `weights` that stay those of the head that it begins from, as that one stores them. SpecError
    if they are of another shape there."""
    if not recipe.keep_end or recipe.begun is None:
        return {}
    theirs = {name: recipe.begun.tensors[name] for name in recipe.begun.config.ends}
    if any(name not in weights or weights[name].shape != stored.shape for name, stored in theirs.items()):
        raise SpecError(f"the end of the {recipe.begun.kind} head that it begins from has no place in this one to stay")
    return theirs


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


@dataclass(frozen=True, slots=True)
class Said:
    """Of a corpus, for each word [V]: how often the target said it, and whether any text holds it."""

    counts: Tensor
    seen: Tensor

    @classmethod
    def of(cls, corpus: Corpus, vocab: int, watch: Watch) -> Said:
        """Read from the tokens."""
        counts, seen = torch.zeros(vocab, dtype=torch.long), torch.zeros(vocab, dtype=torch.bool)
        for at, place in enumerate(corpus, 1):
            tokens, answered = corpus.words(place)
            counts += torch.bincount(tokens[answered].long(), minlength=vocab)
            seen[tokens.long()] = True
            watch.news(News("features", at, len(corpus), "conversations"))
        return cls(counts, seen)

    def unsaid(self) -> int:
        """The highest id that no text holds, else the highest: what can stand for a token not known."""
        unseen = (~self.seen).nonzero().flatten()
        return int(unseen[-1]) if len(unseen) else len(self.seen) - 1


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
