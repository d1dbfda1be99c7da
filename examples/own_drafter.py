"""A drafter of your own, used by name and from parts: python examples/own_drafter.py

`docs/adding-a-drafter.md` explains it line by line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import forerun
from forerun.assemble import choice_for, opened
from forerun.control.fixed import Fixed
from forerun.core.draft import Draft, Law, Tree, Verdict
from forerun.core.noise import Noise
from forerun.core.plan import Plan
from forerun.core.rows import Rows
from forerun.core.seq import Seq
from forerun.drafters import DRAFTERS, Entry
from forerun.engine.step import Parts
from forerun.testing.conformance import check_drafter
from forerun.verify import Auto


@dataclass(frozen=True, slots=True)
class BigramOptions:
    """How far to walk."""

    most: int = 3
    """Tokens of a draft: the further the walk, the wilder the guess."""


class BigramDrafter:
    """Says after each token what followed it the last time."""

    name = "bigram"
    Options = BigramOptions
    laws: frozenset[Law] = frozenset({"chosen"})
    taps: tuple[int, ...] = ()

    def __init__(self, options: BigramOptions | None = None) -> None:
        self.options = options or BigramOptions()
        self.after: dict[Seq, dict[int, int]] = {}
        self.learnt: dict[Seq, int] = {}

    def begin(self, seq: Seq) -> None:
        self.after[seq], self.learnt[seq] = {}, 0

    def read(self, rows: Rows) -> None:
        """No taps."""

    def draft(self, seqs: Sequence[Seq], plan: Plan, noise: Noise) -> Draft:
        return Draft(tuple(self.chain(seq, plan) for seq in seqs))

    def chain(self, seq: Seq, plan: Plan) -> Tree:
        after, token, guess = self.after[seq], seq.last, list[int]()
        after.update(pairwise(seq.tokens[self.learnt[seq] :]))
        self.learnt[seq] = len(seq) - 1
        count = min(plan.depth, plan.nodes, seq.room, self.options.most)
        while len(guess) < count and token in after:
            token = after[token]
            guess.append(token)
        return Tree.chain(seq.last, guess)

    def accept(self, seqs: Sequence[Seq], draft: Draft, rows: Rows, verdict: Verdict) -> None:
        """Nothing to learn here: the next draft reads the grown text."""

    def end(self, seq: Seq) -> None:
        self.after.pop(seq, None)
        self.learnt.pop(seq, None)


def by_name() -> forerun.Engine:
    """The drafter under a name, with options: what the command line does with `-d`."""
    DRAFTERS["bigram"] = Entry(f"{__name__}:BigramDrafter", "what followed this token the last time")
    return forerun.load("smollm2", "bigram:most=2,depth=4")


def from_parts() -> forerun.Engine:
    """The same engine put together by hand."""
    config = forerun.Config("smollm2")
    model = opened(config.model, choice_for(config))
    return forerun.Engine(
        Parts(model.target(vocab_size=model.words.size), BigramDrafter(BigramOptions(most=2)), Auto()),
        Fixed(Plan(depth=4)),
        words=model.words,
        eos_ids=model.eos_ids | model.words.tokenizer.eos_ids,
    )


def main() -> None:
    drafter = BigramDrafter()
    tally = check_drafter(lambda: drafter, holds=lambda: len(drafter.after))
    print(f"it keeps the contract: {tally.accepted} of {tally.drafted} guesses stood in the check")
    for make in (by_name, from_parts):
        with make() as engine:
            result = engine.generate(engine.chat("List the numbers from one to ten."), max_tokens=48)
        print(result.text)
        print(f"{result.stats.accepted} of {result.stats.drafted} drafted tokens stand; tau {result.stats.tau:.2f}")


if __name__ == "__main__":
    main()
