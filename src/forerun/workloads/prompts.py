"""What a measurement asks: prompts of one or more turns, and named collections of them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, replace

from forerun.core.errors import SpecError, unknown


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a user says, turn by turn; the model's answers come between."""

    id: str
    turns: tuple[str, ...]
    category: str = ""
    reference: tuple[str, ...] = ()
    """Known answers, where the source has them; nothing here judges by them."""
    system: str = ""
    """What the model is told before the first turn."""

    def __post_init__(self) -> None:
        if not self.id:
            raise SpecError(f"a prompt needs an id, got {self.id!r}")
        if not self.turns:
            raise SpecError(f"prompt {self.id!r} has no turns: give it at least one text")
        for number, turn in enumerate(self.turns, 1):
            if not turn.strip():
                raise SpecError(f"turn {number} of prompt {self.id!r} is empty: leave it out or write it")
            if any("\ud800" <= char <= "\udfff" for char in turn):  # JSON can say these, UTF-8 cannot
                raise SpecError(f"turn {number} of prompt {self.id!r} has half a surrogate pair, which is no text")

    @property
    def text(self) -> str:
        """The first turn."""
        return self.turns[0]


@dataclass(frozen=True, slots=True)
class Workload:
    """A named collection of prompts, of different ids."""

    name: str
    prompts: tuple[Prompt, ...]
    source: str
    """Where they come from, for people: a path as it was given, a set and its split, or the package."""

    def __post_init__(self) -> None:
        if not self.prompts:
            raise SpecError(f"workload {self.name!r} has no prompts")
        twice = [id for id, times in Counter(prompt.id for prompt in self.prompts).items() if times > 1]
        if twice:
            raise SpecError(f"workload {self.name!r} has the id {twice[0]!r} twice: give every prompt its own")

    def __len__(self) -> int:
        return len(self.prompts)

    @property
    def digest(self) -> str:
        """16 hexadecimal digits that change with any id, turn or the order: the first of their SHA-256."""
        said = json.dumps([[p.id, *([p.system] if p.system else []), *p.turns] for p in self.prompts])
        return hashlib.sha256(said.encode()).hexdigest()[:16]

    @property
    def categories(self) -> tuple[str, ...]:
        """Every category once, in order of appearance; prompts without one are not in it."""
        return tuple(dict.fromkeys(prompt.category for prompt in self.prompts if prompt.category))

    def take(self, count: int) -> Workload:
        """At most `count` prompts, evenly spread over the collection; the same ones every time, all if it has fewer."""
        if count < 1:
            raise SpecError(f"take at least one prompt of {self.name!r}, got {count}")
        if count >= len(self):
            return self
        return replace(self, prompts=tuple(self.prompts[i * len(self) // count] for i in range(count)))

    def only(self, category: str) -> Workload:
        """The prompts of one category, as NAME#CATEGORY; SpecError with the nearest name for one that is not there."""
        chosen = tuple(prompt for prompt in self.prompts if prompt.category == category)
        if not category or not chosen:
            raise unknown(f"category of {self.name}", category, self.categories)
        return replace(self, name=f"{self.name}#{category}", prompts=chosen)
