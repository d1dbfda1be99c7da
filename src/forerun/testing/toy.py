"""Targets small enough to know everything about: next-token tables with exact distributions.

A toy keeps the same books as a real target (what is held, which nodes are guessed) and fails loudly where the engine
breaks the contract, so that the loop can be proved on it before a network is involved.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from forerun.core.draft import Tree
from forerun.core.errors import BrokenInvariant
from forerun.core.protocols import ModelSpec
from forerun.core.rows import Rows
from forerun.core.seq import Seq
from forerun.core.work import Item, Work

NextLaw = Callable[[Sequence[int]], Tensor]
"""All tokens so far -> logits [V] of the next one."""


class ToyTarget:
    """A target whose logits are a plain function of the tokens so far.

    `slots` limits its memory in tokens over all sequences, so that preemption can be provoked. `fed` records every
    (sequence id, token, position) in feeding order. With `layers` it has hidden states for drafters with taps: the one
    of a token, in whatever layer, is its own one-hot vector.
    """

    def __init__(
        self,
        law: NextLaw,
        vocab_size: int,
        max_len: int = 4096,
        slots: int = 1 << 20,
        name: str = "toy",
        layers: int = 0,
    ):
        self.spec = ModelSpec(
            name, vocab_size, max_len, vocab_size if layers else 0, layers, "float64", "cpu", f"toy:{name}"
        )
        self.slots = slots
        self.fed: list[tuple[int, int, int]] = []
        self.forwards = 0
        self._law = law
        self._held: dict[Seq, list[int]] = {}
        self._nodes: dict[Seq, Tree] = {}
        self._reserved: dict[Seq, int] = {}

    def beside(self, *, kv_tokens: int | None = None) -> ToyTarget:
        spec = self.spec
        return ToyTarget(self._law, spec.vocab_size, spec.max_len, kv_tokens or self.slots, spec.name, spec.layers)

    def begin(self, seq: Seq) -> int:
        if seq in self._held:
            raise BrokenInvariant(f"{seq} is open already")
        self._held[seq] = []
        self._reserved[seq] = 0
        return 0

    def held(self, seq: Seq) -> int:
        return len(self._held[seq])

    @property
    def free(self) -> int:
        """Tokens of memory not spoken for."""
        return self.slots - sum(self._reserved.values())

    def reserve(self, seq: Seq, tokens: int) -> bool:
        wanted = self.held(seq) + tokens
        if wanted - self._reserved[seq] > self.free:
            return False
        self._reserved[seq] = max(wanted, self._reserved[seq])
        return True

    def score(self, work: Work, keep: bool = False, taps: Sequence[int] = ()) -> Rows:
        self.spec.check_taps(taps)
        if len({id(item.seq) for item in work}) != len(work):
            raise BrokenInvariant("a sequence stands twice in one forward")
        self.forwards += 1
        before = len(self.fed)
        rows = [row for item in work for row in self._feed(item, keep)]
        logits = torch.stack(rows) if rows else torch.empty(0, self.spec.vocab_size, dtype=torch.float64)
        return Rows(work, logits, self.spec.vocab_size, self._states(before, len(taps)))

    def _states(self, first: int, taps: int) -> Tensor | None:
        """Hidden states [T, taps * V] of what was fed from `first` on."""
        if not taps:
            return None
        tokens = torch.tensor([token for _, token, _ in self.fed[first:]], dtype=torch.long)
        return torch.nn.functional.one_hot(tokens, self.spec.vocab_size).float().repeat(1, taps)

    def _feed(self, item: Item, keep: bool) -> list[Tensor]:
        held = self._held[item.seq]
        if item.start != len(held):
            raise BrokenInvariant(f"{item.seq} is fed from {item.start}, held are {len(held)}")
        seen = len(self._nodes[item.seq]) if item.seq in self._nodes else 0
        if item.seen != seen and not (item.seen == 0 and not keep):
            raise BrokenInvariant(f"{item.seq}: {item.seen} nodes said to be held, {seen} are")
        if item.certain and item.seen:
            raise BrokenInvariant("certain tokens cannot follow guessed nodes")
        for position, token in enumerate(item.certain, start=item.start):
            self._take(item.seq, token, position)
            held.append(token)
        if len(held) + len(item.nodes) > self._reserved[item.seq]:
            raise BrokenInvariant(
                f"{item.seq}: {len(held)} + {len(item.nodes)} tokens, {self._reserved[item.seq]} reserved"
            )
        if item.tree is None:
            self._nodes.pop(item.seq, None)
            return []
        if item.stop != len(item.seq) - 1 or item.tree.tokens[0] != item.seq.last:
            raise BrokenInvariant("a tree grows under the newest token, and all before it must be held")
        self._nodes[item.seq] = item.tree
        depths = item.tree.depths()
        rows = []
        for node in range(item.seen, len(item.tree)):
            self._take(item.seq, item.tree.tokens[node], len(held) + depths[node])
            path = [item.tree.tokens[n] for n in item.tree.path(node)]
            rows.append(self._law([*held, item.tree.tokens[0], *path]))
        return rows

    def _take(self, seq: Seq, token: int, position: int) -> None:
        if not 0 <= token < self.spec.vocab_size:
            raise BrokenInvariant(f"token {token} was fed, allowed are 0..{self.spec.vocab_size - 1}")
        if position >= self.spec.max_len:
            raise BrokenInvariant(f"position {position} was fed, the context has {self.spec.max_len}")
        self.fed.append((seq.id, token, position))

    def commit(self, seqs: Sequence[Seq], paths: Sequence[Sequence[int]]) -> None:
        for seq, path in zip(seqs, paths, strict=True):
            tree = self._nodes.pop(seq)
            path = [node for node in path if node < len(tree)]
            self._held[seq] += [tree.tokens[0], *(tree.tokens[node] for node in path)]
            self._reserved[seq] = len(self._held[seq])

    def truncate(self, seq: Seq, length: int) -> None:
        self._nodes.pop(seq, None)
        del self._held[seq][length:]
        self._reserved[seq] = len(self._held[seq])

    def release(self, seq: Seq) -> None:
        for kept in (self._nodes, self._held, self._reserved):
            kept.pop(seq, None)


def table_law(vocab_size: int, seed: int = 0, order: int = 2, zeros: float = 0.0) -> NextLaw:
    """A random but fixed distribution after every last `order` tokens; a share `zeros` of it is impossible."""
    rows: dict[tuple[int, ...], Tensor] = {}

    def law(tokens: Sequence[int]) -> Tensor:
        context = tuple(tokens[-order:]) if order else ()
        if context not in rows:
            rng = random.Random(f"{seed}:{context}")
            weights = [0.0 if rng.random() < zeros else rng.random() ** 3 + 1e-3 for _ in range(vocab_size)]
            weights[rng.randrange(vocab_size)] += 0.5
            rows[context] = torch.tensor(weights, dtype=torch.float64).log()
        return rows[context]

    return law


def fixed_law(probs: Sequence[float]) -> NextLaw:
    """The same distribution everywhere."""
    row = torch.tensor(probs, dtype=torch.float64).log()
    return lambda tokens: row


def scripted_law(script: Sequence[int], prompt_len: int, vocab_size: int) -> NextLaw:
    """Writes `script` after the prompt; off the script (or past it) it says the poison id, the last of the vocabulary.

    A corrupted prefix shows as poison in the answer.
    """

    def law(tokens: Sequence[int]) -> Tensor:
        output = list(tokens[prompt_len:])
        on_script = len(output) < len(script) and output == list(script[: len(output)])
        row = torch.zeros(vocab_size, dtype=torch.float64)
        row[script[len(output)] if on_script else vocab_size - 1] = 10.0
        return row

    return law
