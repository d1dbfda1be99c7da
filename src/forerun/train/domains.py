"""What a model is asked to ask itself about: each domain is a list of ways in which a user's turn may begin.

The model writes the rest, so a domain needs no data, only openers. A line `-` is an empty one: the model begins by
itself. A domain of the user's own is a few example prompts in a file, whose first words open others, or a description
in some words, told to the model as the system's message (Xu et al. 2406.08464).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from forerun.core.errors import SpecError
from forerun.train.data import own_data

_FIRST_WORDS = 3  # of an example prompt, as an opener


@dataclass(frozen=True, slots=True)
class Domain:
    """A name and its openers."""

    name: str
    openers: tuple[str, ...]
    system: str = ""
    """What the model is told before the user's turn begins; only while prompts are written."""


@cache
def shipped() -> dict[str, Domain]:
    """The domains that come with forerun, by name."""
    folder = files("forerun.train").joinpath("domains")
    texts = {entry.name: entry.read_text(encoding="utf-8") for entry in folder.iterdir() if entry.name.endswith(".txt")}
    return {
        name.removesuffix(".txt"): Domain(name.removesuffix(".txt"), _openers(texts[name])) for name in sorted(texts)
    }


def _openers(text: str) -> tuple[str, ...]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return tuple("" if line == "-" else line.replace("\\n", "\n") for line in lines)


@dataclass(frozen=True, slots=True)
class Mix:
    """Domains and their shares of all prompts, which sum to one."""

    shares: tuple[tuple[Domain, float], ...]

    @classmethod
    def parse(cls, text: str) -> Mix:
        """`code:2,math,chat` (a weight after a colon, 1 if none) as shares.

        A name is one of `shipped`, a file of example prompts, or a description of more than one word. SpecError for
        others and for a weight that is none.
        """
        found: list[tuple[Domain, float]] = []
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            name, _, weight = part.partition(":")
            found.append((_domain(name.strip()), _weight(part, weight)))
        total = sum(weight for _, weight in found)
        if not found or total <= 0:
            raise SpecError(f"a mix of domains looks like code:2,math,chat; got {text!r}")
        return cls(tuple((domain, weight / total) for domain, weight in found))

    def opener(self, choice: float) -> tuple[Domain, str]:
        """The domain and opener at a place in [0, 1): first by shares, then evenly among the domain's openers."""
        for domain, share in self.shares:
            if choice < share:
                return domain, domain.openers[int(choice / share * len(domain.openers))]
            choice -= share
        domain = self.shares[-1][0]
        return domain, domain.openers[-1]


def _domain(name: str) -> Domain:
    if name in shipped():
        return shipped()[name]
    if Path(name).is_file():
        asked = own_data([Path(name)]).conversations
        return Domain(Path(name).stem, tuple(" ".join(one.turns[0].split(" ")[:_FIRST_WORDS]) for one in asked))
    if " " in name:
        return Domain(name, ("",), f"You help users with {name}. They ask about nothing else.")
    raise SpecError(
        f"there is no domain {name!r} (known: {', '.join(shipped())}); one of your own is a file of example prompts, "
        "or a description of more than one word"
    )


def _weight(part: str, text: str) -> float:
    if not text:
        return 1.0
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 < value < 1e6:
        raise SpecError(f"the weight of a domain is a number above 0, as in code:2; got {part!r}")
    return value
