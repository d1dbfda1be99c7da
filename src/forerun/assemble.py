"""From names to an engine: the only file that knows every room.

Everything is checked here, before the first token: unknown names and keys, a draft model with another tokenizer, a
drafter and a verifier that would not be lossless together, trees for a target that can only score chains.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast, get_args

import torch
from torch import Tensor

from forerun.control.fixed import Fixed
from forerun.core import notes
from forerun.core.clock import NO_CLOCK, Clock, PhaseClock
from forerun.core.errors import LoadError, LossyError, SpecError, unknown
from forerun.core.options import Spec, build
from forerun.core.plan import Plan
from forerun.core.protocols import Drafter, Target, Verifier
from forerun.core.vocabulary import PLAIN, Vocabulary
from forerun.costs import prices
from forerun.costs.prices import FREE, Prices
from forerun.drafters.first_of import runs_model
from forerun.drafters.names import CASCADES, DRAFTERS, HEADS, drafter_entry
from forerun.drafters.specs import Limits, parts_of, split_plan
from forerun.engine.engine import Engine
from forerun.engine.step import Parts
from forerun.models.formats import as_dtype
from forerun.models.opening import open_model, tokenizer_of, words_of
from forerun.native import ext
from forerun.targets.choice import KV, Choice, Dtype, Runtime, Weights, Wish, choose
from forerun.targets.paged import PagedTarget
from forerun.targets.threads import use_threads
from forerun.text.pairing import shown, unlike
from forerun.text.words import TextWords
from forerun.verify.names import verifier
from forerun.weights.parts import lone_gguf, part_names
from forerun.weights.pull import resolve


@dataclass(frozen=True, slots=True)
class Config:
    """How to build an engine. Fields are options of `forerun.load`, and most of them of the command line."""

    model: str
    """`smollm2`, a folder or .gguf file, or `org/name`, `org/name:Q4_K_M` or `org/name/file.gguf` of the hub."""
    drafter: str = "none"
    """`name[:key=value,…]`; see `forerun drafters`."""
    verify: str = "auto"
    """How drafts are judged; `auto` takes the best lossless rule for each draft."""
    runtime: Runtime = "auto"
    """`native` is our own for CPUs, compiled; `torch` our own for the rest; `hf` runs the model through transformers
    (extra `hf`). `auto` takes native on a CPU if its extension is there, else torch; `choice_for` says why."""
    weights: Weights = "auto"
    """Format of the weights on the native runtime; `auto` keeps what the file holds where there is a kernel for it."""
    kv: KV = "auto"
    """Format of keys and values on the native runtime; `auto` is f32 for f32 weights, else bf16."""
    dtype: Dtype = "auto"
    """Of weights and memory on the other runtimes, float32 if `auto`. On the native one float32 and bfloat16 stand for
    weights and kv."""
    device: str = "cpu"
    threads: int | None = None
    """CPU threads; None leaves what is. On the native runtime that is at first as many as measure fastest, at most the
    cores to use, and torch keeps one beside it."""
    max_len: int | None = None
    """Context in tokens; None is what the model was made for."""
    kv_tokens: int | None = None
    """Memory for keys and values, in tokens over all sequences; None is room for one full context, or 8192 tokens."""
    chunk: int = 512
    """Most prompt tokens read in a step."""
    max_batch: int = 64
    """Most sequences that run at once."""
    reuse: bool = True
    """Remember what ended requests have read, for later ones that begin alike."""
    costs: str = ""
    """A file of what forwards of this model cost on this machine, by `forerun lab curve --out FILE`, by which trees are
    grown; `free` lets rows cost nothing. Else the nearest of those that come with forerun counts."""
    timed: bool = True
    """Keep the time of each phase (on CUDA this waits for the device at each border)."""


def load(model: str | os.PathLike[str], drafter: str = "none", **options: object) -> Engine:
    """An engine for `model` (a name or a path) with `drafter`; further `options` are fields of `Config`.

    Raises SpecError for names and values that do not exist, LoadError for files that cannot be used, LossyError for a
    combination that would change the text.
    """
    name = os.fspath(model) if isinstance(model, os.PathLike) else model
    return assemble(build(Config, {"model": name, "drafter": drafter, **options}, "engine"))


def assemble(config: Config) -> Engine:
    """The engine that `config` describes."""
    config = replace(config, drafter=named(config.drafter))
    drafter_entry(Spec.parse(config.drafter).name)
    verifier(config.verify)
    return engine_over(foundation(config), config.drafter)


@dataclass(frozen=True, slots=True)
class Foundation:
    """A model that is ready to serve, before it has a drafter: several engines may stand on one and take turns, or each
    on one `apart`, in threads of their own."""

    config: Config
    target: Target
    words: TextWords | None
    eos_ids: frozenset[int]
    vocabulary: Vocabulary = PLAIN
    prices: Prices = FREE
    """What rows of the target's forward cost."""

    def apart(self, kv_tokens: int | None = None) -> Foundation:
        """The same weights with memory of its own (as much, if nobody says), for an engine beside others."""
        return replace(self, target=self.target.beside(kv_tokens=kv_tokens))


def foundation(config: Config) -> Foundation:
    """The model of `config`, loaded with its memory."""
    choice = choice_for(config)
    said = prices.said(config.costs)  # before a model is loaded
    use_threads(config.threads, choice)
    model = opened(config.model, choice)
    words = model.words
    target = model.target(vocab_size=model.size, kv_tokens=config.kv_tokens, max_len=config.max_len, reuse=config.reuse)
    ends = model.eos_ids | words.end_ids
    return Foundation(config, target, words, ends, model.vocabulary, said or default_prices(config, target))


def engine_over(base: Foundation, drafter: str, made: Drafter | None = None) -> Engine:
    """An engine over `base` with the drafter of that spec; `made` is one with these options that exists already."""
    spec, config = Spec.parse(named(drafter)), base.config
    plan, limits, values = split_plan(spec)
    verify = verifier(config.verify)
    part = made or make_drafter(spec.name, values, base)
    if limits.rows is None and choice_for(config).runtime == "native" and runs_model(part):
        limits = replace(limits, rows=base.prices.full or None)
    check_pairing(base.target, part, verify, plan)
    return Engine(
        Parts(base.target, part, verify, base.vocabulary),
        Fixed(plan if spec.name != "none" else Plan.none(), limits.up_to, limits.rows),
        words=base.words,
        eos_ids=base.eos_ids,
        chunk=config.chunk,
        max_batch=config.max_batch,
        clock=make_clock(config),
    )


def named(drafter: str) -> str:
    """A drafter's text by its name: a folder stands for the drafter of what it holds, a head's own or `model`."""
    path, _, rest = drafter.partition(":")
    if path in DRAFTERS or not Path(path).is_dir():
        target, equals, own = drafter.partition("=")
        if equals and ":" not in target:  # of one target among several
            return f"{target}={named(own)}"
        if path not in DRAFTERS and ("/" in path or os.sep in path):
            why = "is a file: give its folder" if Path(path).exists() else "does not exist"
            raise SpecError(f"the head's folder {path} {why}; a head on the hub is -d KIND:path=OWNER/NAME")
        return drafter
    from forerun.models.heads.opening import kind_at  # what reads a head's files is of no use without one

    return ",".join(filter(None, (f"{kind_at(Path(path))}:path={path}", rest)))


def choice_for(config: Config) -> Choice:
    """The runtime that runs this, and why; SpecError for options that contradict one another."""
    return choose(Wish(config.runtime, config.weights, config.kv, config.dtype, config.device))


@dataclass(frozen=True, slots=True)
class Opened:
    """A model's files, opened for a runtime: `target`, called with the sizes wanted, is the model behind `Target`."""

    words: TextWords
    eos_ids: frozenset[int]
    target: Callable[..., Target]
    vocabulary: Vocabulary = PLAIN
    rows: int | None = None
    """Rows of the model's table of tokens, if its files say."""

    @property
    def size(self) -> int:
        """Ids that exist: the tokenizer's, as far as the model has rows for them."""
        return self.words.size if self.rows is None else min(self.words.size, self.rows)


def opened(name: str, choice: Choice) -> Opened:
    """The model called `name`; what only other runtimes need is not imported."""
    path = resolve(name)
    make: Callable[..., Target]
    if choice.runtime == "native":
        from forerun.native.vocab import NativeVocabulary
        from forerun.targets.native_runner import load as load_native

        packed = open_model(path, choice.weights)
        notes.give(f"{packed.name}: {note}" for note in packed.notes)
        make = partial(load_native, packed, kv=choice.kv)
        return _told(Opened(words_of(packed), packed.eos_ids, make, NativeVocabulary(), _rows(packed.config)), path)
    from forerun.weights.folder import open_checkpoint

    checkpoint = open_checkpoint(path)
    words = TextWords(tokenizer_of(checkpoint))
    turned = [] if choice.dtype_given else as_dtype(checkpoint.stored, choice.dtype)
    said = (*checkpoint.notes, *words.tokenizer.notes, *turned)
    notes.give(f"{checkpoint.path.name}: {note}" for note in said)
    if choice.runtime == "hf":
        from forerun.targets.hf_target import load as load_hf

        if len(part_names(checkpoint.path.name)) > 1:
            raise LoadError(
                f"{checkpoint.path} is the first part of a split .gguf model, which transformers does not read: "
                "take runtime native or torch, or join the parts with llama.cpp's llama-gguf-split --merge"
            )
        make = partial(
            load_hf, checkpoint.path, dtype=choice.dtype, device=choice.device, corrected=checkpoint.corrected
        )
    else:
        from forerun.targets.load import load as load_torch

        make = partial(load_torch, checkpoint, dtype=choice.dtype, device=choice.device)
    return _told(Opened(words, checkpoint.eos_ids, make, rows=_rows(checkpoint.config)), path)


def _rows(config: Mapping[str, object]) -> int | None:
    got = config.get("vocab_size")
    return got if isinstance(got, int) else None


def _told(model: Opened, path: Path) -> Opened:
    """The model, after a note if its tokenizer has ids that it has no rows for."""
    if model.size < model.words.size:
        notes.give([f"{path.name}: the tokenizer has {model.words.size} ids, the model {model.size}: no more are used"])
    return model


def default_prices(config: Config, target: Target) -> Prices:
    """What the target's rows cost, as was measured of the nearest machine and format. Of a GPU nothing was, so there
    they are free."""
    if config.device != "cpu":
        return FREE
    format = target.runner.facts.dtype if isinstance(target, PagedTarget) else config.dtype
    return prices.default(ext.isa() if ext.why_not() == "" else "portable", format)


def make_clock(config: Config) -> Clock:
    """The stopwatch for this device."""
    if not config.timed:
        return NO_CLOCK
    return PhaseClock(torch.cuda.synchronize if config.device.startswith("cuda") else None)


def make_drafter(name: str, values: Mapping[str, object], base: Foundation) -> Drafter:
    """The drafter called `name`; those that run a whole model are handed one."""
    cls, target = drafter_entry(name).load(), base.target
    options = build(cls.Options, values, name)
    if name in CASCADES:
        return cast(Drafter, cls(*cascade(name, options.of, base), options))
    if name == "model":
        draft, words = draft_target(options.path, options.weights, target, base.words, base.config)
        vocab = target.spec.vocab_size
        return cast(Drafter, cls(draft, options, share(draft, target), words, vocab, base.prices))
    if name in HEADS:
        from forerun import heads  # what reads a head's files is of no use without one

        return heads.drafter(cls, name, options, target, base.prices)
    if name == "skip":
        first = shallow(target, options.layers)
        return cast(Drafter, cls(first, options, share(first, target), prices=base.prices))
    return cast(Drafter, cls(options))


def cascade(name: str, of: str, base: Foundation) -> tuple[list[Drafter], list[Plan]]:
    """The drafters of a cascade `a+b[key=value;key=value]` and how far each goes at most: its defaults but for what
    stands in brackets."""
    parts = parts_of(name, of)
    split = [split_plan(part) for part in parts]
    if odd := [part.name for part, (_, limits, _) in zip(parts, split, strict=True) if limits != Limits()]:
        raise SpecError(
            f"up_to and rows are of the whole {name}, not of {odd[0]} in it: give them outside the brackets"
        )
    drafters = [make_drafter(part.name, own, base) for part, (*_, own) in zip(parts, split, strict=True)]
    return drafters, [plan for plan, *_ in split]


def shallow(target: Target, layers: int | None) -> Target:
    """The target's own first layers as a model of their own."""
    if not isinstance(target, PagedTarget):
        raise SpecError("skip drafts with the target's own first layers, which runtime hf cannot run alone")
    return target.shallow(layers if layers is not None else max(1, target.spec.layers // 3))


def share(draft: Target, target: Target) -> float:
    """What a forward of `draft` costs of the target's where reading weights is what takes the time; 0 if unknown."""
    mine, whole = draft.spec.weight_bytes, target.spec.weight_bytes
    return mine / whole if whole else 0.0


def draft_choice(path: str, weights: str, config: Config) -> Choice:
    """What runs a draft model: the target's runtime and format of memory, weights as of the `model` drafter."""
    choice = choice_for(config)
    if weights not in get_args(Weights):
        raise unknown("weights of a draft model", weights, get_args(Weights))
    if choice.runtime != "native":
        return choose(Wish(choice.runtime, cast(Weights, weights), dtype=config.dtype, device=config.device))
    if weights == "auto" and lone_gguf(resolve(path)).is_dir():
        return replace(choice, weights="int8")
    return replace(choice, weights=cast(Weights, weights))


def draft_target(
    path: str, weights: str, target: Target, words: TextWords | None, config: Config
) -> tuple[Target, Tensor | None]:
    """A draft model, refused if its tokenizer is another one than the target's, and the ids that both share; None for
    all."""
    if not path:
        raise SpecError("the model drafter needs a model: -d model:path=PATH (a folder, a .gguf file or org/name)")
    if words is None:
        raise SpecError(f"{target.spec.name!r} has no tokenizer that a draft model's could be compared with")
    model = opened(path, draft_choice(path, weights, config))
    mine, theirs = words.tokenizer, model.words.tokenizer
    try:
        odd = unlike(mine, theirs)
    except SpecError as error:
        raise SpecError(
            f"the draft model {path!r} reads text with another tokenizer than {target.spec.name!r}: {error}; "
            "take a draft model of the same family"
        ) from None
    draft = model.target(vocab_size=model.size, kv_tokens=config.kv_tokens, reuse=config.reuse)
    if odd:
        i = min(odd)
        notes.give([
            f"{draft.spec.name}: {len(odd)} special or added token(s) are not those of {target.spec.name} (id {i} is "
            f"{shown(theirs, i)} there, {shown(mine, i)} here): never guessed"
        ])  # fmt: skip
    elif draft.spec.vocab_size == target.spec.vocab_size:
        return draft, None
    known = min(draft.spec.vocab_size, target.spec.vocab_size)
    return draft, torch.tensor([i for i in range(known) if i not in odd])


def check_pairing(target: Target, drafter: Drafter, verify: Verifier, plan: Plan) -> None:
    """Refuse what would not be lossless, or could not run."""
    odd = drafter.laws - verify.laws
    if odd:
        raise LossyError(
            f"the drafter {drafter.name!r} makes {min(odd)!r} drafts, which the verifier {verify.name!r} cannot judge "
            f"without changing the text; it judges {sorted(verify.laws)}: use verify=auto, or a law of these"
        )
    if verify.chains_only and plan.width > 1:
        raise LossyError(f"the verifier {verify.name!r} judges chains, the plan asks for trees (width={plan.width})")
    if not target.spec.trees and plan.width > 1:
        raise SpecError(f"{target.spec.name!r} can only score chains on this runtime: leave width at 1")
