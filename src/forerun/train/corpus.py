"""A corpus on disk: conversations in shards that are written whole or not at all, and read a sample at a time.

`corpus.json` says what it is of. `kept.json` says which of the conversations on disk belong to it, those with the
lowest numbers: a run that is broken off saves others that have ended already, for when it goes on.

A shard is a safetensors file: `tokens` int32 [N], `answered` bool [N], `states` bfloat16 [N - S, taps * E], the S
samples one after another; its metadata says what each is. Logits are not kept: the target's head makes them anew from
the last tap, the output of the final norm.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from forerun.core.errors import LoadError, SpecError
from forerun.train.disk import written
from forerun.train.sample import Sample

VERSION = 1
SHARD_TOKENS = 16384
HELD_OUT = 16
"""One conversation in so many is never trained on."""
_FACTS, _KEPT = "corpus.json", "kept.json"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a corpus is of. Two runs with the same facts go on with one another's work."""

    model: str
    fingerprint: str
    vocab_size: int
    hidden_size: int
    layers: int
    taps: tuple[int, ...]
    """Target layers whose inputs are kept; the last is the number of layers: the final norm's output."""
    seed: int
    asked: str
    """Where the prompts are from, in words: a mix of domains or files."""
    manner: Mapping[str, object]
    data: str | None = None
    """A digest of those prompts or domains. None here and below: an older version did not write it down."""
    avoid: str | None = None
    """A digest of what was kept out."""
    weights: str | None = None
    """Of the target while it answered."""
    version: int = VERSION

    def odd(self, other: Facts, names: Iterable[str]) -> str | None:
        """The first of the fields `names` that differs, as far as both have it."""
        for name in names:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs and mine is not None and theirs is not None:
                return name
        return None

    @property
    def token_bytes(self) -> int:
        """What a token takes on disk."""
        return 2 * len(self.taps) * self.hidden_size + 5


@dataclass(frozen=True, slots=True)
class Place:
    """A sample on disk, and what is known of it without reading it."""

    path: Path
    number: int
    domain: str
    greedy: bool
    prompt: str
    length: int
    learnt: int
    first_token: int
    first_state: int
    system: str = ""

    @property
    def held_out(self) -> bool:
        return self.number % HELD_OUT == 0


class Corpus:
    """The corpus in `folder`, which must have been begun."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.facts = _facts(folder)
        self.found: list[Place] = []
        """All conversations on disk."""
        self.ended: set[int] = set()
        self._kept = _kept(folder)
        for path in sorted(folder.glob("shard-*.safetensors")):
            self._enter(path)
        self.places = [place for place in self.found if self._belongs(place)]

    @property
    def whole(self) -> bool:
        """Whether nobody is still at it: made to its end, or by a version that did not write that down."""
        return self._kept is None or bool(self._kept["whole"])

    def _belongs(self, place: Place) -> bool:
        kept = self._kept
        return kept is None or (place.number < kept["upto"] and place.number not in kept["left_out"])

    def join(self, other: Corpus) -> None:
        """Take another corpus's conversations in too; SpecError if it is of another target or other taps."""
        mine, theirs = self.facts, other.facts
        if (mine.fingerprint, mine.taps) != (theirs.fingerprint, theirs.taps):
            raise SpecError(f"{other.folder} is of another target or other taps than {self.folder}")
        self.places += other.places

    @classmethod
    def begin(cls, folder: Path, facts: Facts) -> Corpus:
        """The corpus there, to go on with, or a new one; SpecError if what is there is of other facts."""
        if (folder / _FACTS).exists():
            corpus = cls(folder)
            if odd := facts.odd(corpus.facts, Facts.__dataclass_fields__):
                mine, theirs = getattr(facts, odd), getattr(corpus.facts, odd)
                raise SpecError(
                    f"{folder} holds a corpus with {odd} {theirs!r}, this run would make one with {mine!r}: "
                    "give another folder"
                )
            return corpus
        _write(folder / _KEPT, {"upto": 0, "left_out": [], "whole": False, "by": None})
        _write(folder / _FACTS, asdict(facts))
        return cls(folder)

    def keep(self, upto: int, left_out: Collection[int], whole: bool) -> None:
        """Say which conversations belong to it: those below `upto` but for some; and whether it is made to its end."""
        self._kept = {"upto": upto, "left_out": sorted(left_out), "whole": whole, "by": None}
        _write(self.folder / _KEPT, self._kept)
        self.places = [place for place in self.found if self._belongs(place)]

    @property
    def by(self) -> object:
        """The settings of the run that made it, where it was signed."""
        return self._kept and self._kept["by"]

    def sign(self, settings: object) -> None:
        """Write down the settings of the run that made it."""
        self._kept = {**(self._kept or {}), "by": settings}
        _write(self.folder / _KEPT, self._kept)

    def within(self, tokens: int) -> list[Place]:
        """The conversations with the lowest numbers that have so many answered tokens, or all."""
        found: list[Place] = []
        for place in self:
            if tokens <= 0:
                break
            found.append(place)
            tokens -= place.learnt
        return found

    def __len__(self) -> int:
        return len(self.places)

    @property
    def learnt(self) -> int:
        """Answered tokens on disk."""
        return sum(place.learnt for place in self.places)

    @property
    def tokens(self) -> int:
        """Tokens on disk."""
        return sum(place.length for place in self.places)

    def add(self, samples: Sequence[Sample], prompts: Sequence[str], ended: Iterable[int]) -> None:
        """Write one shard; `ended` are the numbers that need not be asked for again.

        CapacityError if the disk is full: what was written before stays, and a later run goes on from there.
        """
        index = len(list(self.folder.glob("shard-*.safetensors")))
        told = [
            {"number": s.number, "domain": s.domain, "greedy": s.greedy, "length": len(s.tokens), "learnt": s.learnt,
             "prompt": prompt, "system": s.system}
            for s, prompt in zip(samples, prompts, strict=True)
        ]  # fmt: skip
        tensors = {
            "tokens": torch.cat([s.tokens for s in samples]),
            "answered": torch.cat([s.answered for s in samples]),
            "states": torch.cat([s.states for s in samples]),
        }
        meta = {"samples": json.dumps(told, ensure_ascii=False), "ended": json.dumps(sorted(ended))}
        path = self.folder / f"shard-{index:05d}.safetensors"
        size = sum(tensor.nbytes for tensor in tensors.values())
        written(path, lambda scratch: save_file(tensors, scratch, meta), size)
        self._enter(path)

    def load(self, place: Place) -> Sample:
        """Read one sample."""
        first, state, count = place.first_token, place.first_state, place.length
        with safe_open(place.path, framework="pt") as file:
            tokens: Tensor = file.get_slice("tokens")[first : first + count]
            answered: Tensor = file.get_slice("answered")[first : first + count]
            states: Tensor = file.get_slice("states")[state : state + count - 1]
        return Sample(place.number, place.domain, place.greedy, tokens, answered, states)

    def words(self, place: Place) -> tuple[Tensor, Tensor]:
        """Its tokens, and which of them are answered; no states are read."""
        with safe_open(place.path, framework="pt") as file:
            at = slice(place.first_token, place.first_token + place.length)
            return file.get_slice("tokens")[at], file.get_slice("answered")[at]

    def _enter(self, path: Path) -> None:
        try:
            with safe_open(path, framework="pt") as file:
                meta = file.metadata()
            told: list[dict[str, Any]] = json.loads(meta["samples"])
            self.ended.update(json.loads(meta["ended"]))
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise LoadError(f"{path} is damaged ({error}): delete it, and its conversations are held anew") from error
        token = state = 0
        for each in told:
            self.found.append(Place(path, first_token=token, first_state=state, **each))
            token, state = token + each["length"], state + each["length"] - 1

    def __iter__(self) -> Iterator[Place]:
        return iter(sorted(self.places, key=lambda place: place.number))


def _facts(folder: Path) -> Facts:
    try:
        held = json.loads((folder / _FACTS).read_bytes())
        return Facts(**{**held, "taps": tuple(held["taps"])})
    except FileNotFoundError:
        raise LoadError(f"{folder} holds no corpus: {_FACTS} is missing") from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise LoadError(f"{folder / _FACTS} cannot be read ({error})") from error


def _kept(folder: Path) -> dict[str, Any] | None:
    path = folder / _KEPT
    try:
        held = json.loads(path.read_bytes())
        return {**held, "upto": int(held["upto"]), "left_out": list(held["left_out"]), "by": held.get("by")}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise LoadError(f"{path} cannot be read ({error})") from error


def _write(path: Path, value: Mapping[str, object]) -> None:
    content = json.dumps(value, indent=1, ensure_ascii=False).encode()
    written(path, lambda scratch: scratch.write_bytes(content))
