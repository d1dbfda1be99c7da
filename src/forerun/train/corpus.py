"""A corpus on disk: conversations in shards that are written whole or not at all, and read a sample at a time.

A shard is a safetensors file: `tokens` int32 [N], `answered` bool [N], `states` bfloat16 [N - S, taps * E], the S
samples one after another; its metadata says what each is. Logits are not kept: the target's head makes them anew from
the last tap, the output of the final norm.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from forerun.core.errors import CapacityError, LoadError, SpecError
from forerun.train.sample import Sample

VERSION = 1
SHARD_TOKENS = 16384
HELD_OUT = 16
"""One conversation in so many is never trained on."""
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


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
    """Where the prompts are from: a mix of domains or files."""
    manner: Mapping[str, object]
    version: int = VERSION

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

    @property
    def held_out(self) -> bool:
        return self.number % HELD_OUT == 0


class Corpus:
    """The corpus in `folder`, which must have been begun."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.facts = _facts(folder)
        self.places: list[Place] = []
        self.ended: set[int] = set()
        for path in sorted(folder.glob("shard-*.safetensors")):
            self._enter(path)

    def join(self, other: Corpus) -> None:
        """Take another corpus's conversations in too; SpecError if it is of another target or other taps."""
        mine, theirs = self.facts, other.facts
        if (mine.fingerprint, mine.taps) != (theirs.fingerprint, theirs.taps):
            raise SpecError(f"{other.folder} is of another target or other taps than {self.folder}")
        self.places += other.places

    @classmethod
    def begin(cls, folder: Path, facts: Facts) -> Corpus:
        """The corpus there, to go on with, or a new one; SpecError if what is there is of other facts."""
        if (folder / "corpus.json").exists():
            corpus = cls(folder)
            if corpus.facts != facts:
                mine, theirs = asdict(facts), asdict(corpus.facts)
                odd = next(key for key in mine if mine[key] != theirs[key])
                raise SpecError(
                    f"{folder} holds a corpus with {odd} {theirs[odd]!r}, this run would make one with {mine[odd]!r}: "
                    "give another folder"
                )
            return corpus
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _write(folder / "corpus.json", json.dumps(asdict(facts), indent=1, ensure_ascii=False).encode())
        except OSError as error:
            raise _no_room(folder, error) from error
        return cls(folder)

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
             "prompt": prompt}
            for s, prompt in zip(samples, prompts, strict=True)
        ]  # fmt: skip
        tensors = {
            "tokens": torch.cat([s.tokens for s in samples]),
            "answered": torch.cat([s.answered for s in samples]),
            "states": torch.cat([s.states for s in samples]),
        }
        path = self.folder / f"shard-{index:05d}.safetensors"
        scratch = path.with_suffix(".part")
        meta = {"samples": json.dumps(told, ensure_ascii=False), "ended": json.dumps(sorted(ended))}
        try:
            save_file(tensors, scratch, meta)
            os.replace(scratch, path)
        except (OSError, SafetensorError) as error:
            scratch.unlink(missing_ok=True)
            raise _no_room(self.folder, error) from error
        self._enter(path)

    def load(self, place: Place) -> Sample:
        """Read one sample."""
        first, state, count = place.first_token, place.first_state, place.length
        with safe_open(place.path, framework="pt") as file:
            tokens: Tensor = file.get_slice("tokens")[first : first + count]
            answered: Tensor = file.get_slice("answered")[first : first + count]
            states: Tensor = file.get_slice("states")[state : state + count - 1]
        return Sample(place.number, place.domain, place.greedy, tokens, answered, states)

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
            self.places.append(Place(path, first_token=token, first_state=state, **each))
            token, state = token + each["length"], state + each["length"] - 1

    def __iter__(self) -> Iterator[Place]:
        return iter(sorted(self.places, key=lambda place: place.number))


def _facts(folder: Path) -> Facts:
    try:
        held = json.loads((folder / "corpus.json").read_bytes())
        return Facts(**{**held, "taps": tuple(held["taps"])})
    except FileNotFoundError:
        raise LoadError(f"{folder} holds no corpus: corpus.json is missing") from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise LoadError(f"{folder / 'corpus.json'} cannot be read ({error})") from error


def _write(path: Path, content: bytes) -> None:
    scratch = path.with_suffix(".part")
    scratch.write_bytes(content)
    os.replace(scratch, path)


def _no_room(folder: Path, error: Exception) -> CapacityError:
    full = (isinstance(error, OSError) and error.errno in _DISK_FULL) or "No space left" in str(error)
    what = "the disk is full" if full else f"it cannot be written ({error})"
    return CapacityError(
        f"{folder}: {what}; what was captured before is kept, make room and run the same command again"
    )
