"""Does a target keep the contract? Whatever is batched, grown or cut, rows are those of one token at a time."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from forerun.core.draft import Tree
from forerun.core.params import SamplingParams
from forerun.core.protocols import Target
from forerun.core.rows import Rows
from forerun.core.seq import Seq, Token
from forerun.core.work import Item

LENGTHS = (1, 9, 4, 23)
NODES = 7


def check_target(make: Callable[[], Target], tolerance: float = 1e-4, seed: int = 0) -> None:
    """Check targets that `make` returns, each fresh, with room for a hundred tokens; AssertionError says what broke.

    Rows may differ from one-token-at-a-time rows by `tolerance` (relative and absolute). Chains stand in for trees if
    `spec.trees` is False.
    """
    bench = _Bench(make(), make(), tolerance, random.Random(seed))
    for check in (bench.ragged, bench.grown, bench.committed, bench.truncated, bench.released, bench.resumed):
        check()


class _Bench:
    """A target under test and another that reads one token at a time."""

    def __init__(self, target: Target, plain: Target, tolerance: float, rng: random.Random) -> None:
        self._target = target
        self._plain = plain
        self._tolerance = tolerance
        self._rng = rng
        self._ids = 0

    def ragged(self) -> None:
        """Sequences of different lengths, read in chunks of different sizes, with trees of different sizes."""
        seqs = [self._open(length) for length in LENGTHS]
        early = [Item(seq, self._held(seq), len(seq) // 2) for seq in seqs if len(seq) // 2 > self._held(seq)]
        self._target.score(early)
        for item in early:
            assert self._held(item.seq) == item.stop, f"{self._held(item.seq)} tokens are held, {item.stop} were fed"
        items = [self._item(seq, self._tree(seq, i * 2)) for i, seq in enumerate(seqs)]
        self._compare(items, self._target.score(items), "a ragged batch of chunks and trees")
        self._close(*seqs)

    def grown(self) -> None:
        """A tree fed in three parts with `keep`, beside one fed at once: same rows."""
        seqs = [self._open(8), self._open(5)]
        trees = [self._tree(seq, NODES) for seq in seqs]
        for upto in (1, 4, NODES + 1):
            part = [Tree(tree.tokens[:upto], tree.parents[:upto]) for tree in trees]
            items = [
                self._item(seq, tree, seen={1: 0, 4: 1}.get(upto, 4)) for seq, tree in zip(seqs, part, strict=True)
            ]
            self._compare(items, self._target.score(items, keep=True), "a tree grown with keep")
        items = [self._item(seq, tree) for seq, tree in zip(seqs, trees, strict=True)]
        self._compare(items, self._target.score(items), "a tree fed again without keep")
        self._close(*seqs)

    def committed(self) -> None:
        """After a commit the root and the path are held, the other nodes are gone, and the next rows are right."""
        seqs = [self._open(6), self._open(11), self._open(2)]
        for turn in range(3):
            trees = [self._tree(seq, NODES) for seq in seqs]
            self._target.score([self._item(seq, tree) for seq, tree in zip(seqs, trees, strict=True)])
            paths = [tree.path((turn * 3 + i * 2) % (NODES + 1)) for i, tree in enumerate(trees)]
            self._target.commit(seqs, paths)
            for seq, tree, path in zip(seqs, trees, paths, strict=True):
                wanted = len(seq) + len(path)
                assert self._held(seq) == wanted, f"after a commit {self._held(seq)} are held, {wanted} stand"
                seq.extend(Token(token) for token in [*(tree.tokens[node] for node in path), self._token()])
                assert self._target.reserve(seq, 40), "the target has no memory for this check"
        items = [self._item(seq, Tree.root(seq.last)) for seq in seqs]
        self._compare(items, self._target.score(items), "the step after a commit")
        self._close(*seqs)

    def truncated(self) -> None:
        """Cut back, guesses and all, and read another way on."""
        seq = self._open(12)
        self._target.score([self._item(seq, self._tree(seq, NODES))])
        self._target.truncate(seq, 7)
        assert self._held(seq) == 7, f"truncated to 7, {self._held(seq)} are held"
        assert self._target.reserve(seq, 40), "memory that truncate gave back cannot be reserved again"
        seq.tokens[7:] = [self._token() for _ in range(8)]
        items = [self._item(seq, self._tree(seq, 3))]
        self._compare(items, self._target.score(items), "the step after truncate")
        self._close(seq)

    def released(self) -> None:
        """Sequences come and go, guesses pending or not; memory is what it was."""
        before = self._capacity()
        for turn in range(12):
            seqs = [self._open(5 + turn), self._open(3)]
            self._target.score([self._item(seq, self._tree(seq, 4)) for seq in seqs], keep=turn % 2 == 0)
            if turn % 3 == 0:
                self._target.commit(seqs, [[] for _ in seqs])
            self._close(*seqs)
        after = self._capacity()
        assert after == before, f"a fresh sequence could reserve {before} tokens, after 24 releases {after}: a leak"

    def resumed(self) -> None:
        """Preempted (released, begun again with its tokens so far) a sequence has the rows it would have had."""
        seq = self._open(9)
        self._target.score([self._item(seq, self._tree(seq, 2))])
        self._target.commit([seq], [[]])
        seq.extend([Token(self._token())])
        self._target.release(seq)
        held = self._target.begin(seq)
        assert 0 <= held < len(seq), f"begin says that {held} of {len(seq)} tokens are held; the last never is"
        assert held == self._held(seq), f"begin says {held}, held says {self._held(seq)}"
        assert self._target.reserve(seq, 40), "the target has no memory for this check"
        items = [self._item(seq, self._tree(seq, 3))]
        self._compare(items, self._target.score(items), "a sequence that came back")
        self._close(seq)

    def _token(self) -> int:
        return self._rng.randrange(self._target.spec.vocab_size)

    def _open(self, length: int) -> Seq:
        self._ids += 1
        seq = Seq(self._ids, [self._token() for _ in range(length)], SamplingParams(), self._target.spec.max_len)
        self._target.begin(seq)
        assert self._target.reserve(seq, length + 40), "the target has no memory for this check"
        return seq

    def _close(self, *seqs: Seq) -> None:
        for seq in seqs:
            self._target.release(seq)

    def _held(self, seq: Seq) -> int:
        return self._target.held(seq)

    def _item(self, seq: Seq, tree: Tree, seen: int = 0) -> Item:
        return Item(seq, self._held(seq), len(seq) - 1, tree, seen)

    def _tree(self, seq: Seq, nodes: int) -> Tree:
        """A random tree of so many nodes under the last token, or a chain where the target scores no trees."""
        trees = self._target.spec.trees
        parents = (-1, *(self._rng.randrange(max(0, n - 3), n) if trees else n - 1 for n in range(1, nodes + 1)))
        return Tree((seq.last, *(self._token() for _ in range(nodes))), parents)

    def _compare(self, items: Sequence[Item], rows: Rows, where: str) -> None:
        for i, item in enumerate(items):
            for node in range(item.seen, len(item.nodes)):
                path = [item.nodes.tokens[n] for n in item.nodes.path(node)]
                wanted, got = self._row([*item.seq.tokens, *path]), rows.raw(i, node)
                assert got.shape == wanted.shape, (
                    f"{where}: a row of shape {tuple(got.shape)}, not {tuple(wanted.shape)}"
                )
                off = float((got.double() - wanted.double()).abs().max())
                close = torch.allclose(got.double(), wanted.double(), atol=self._tolerance, rtol=self._tolerance)
                assert close, f"{where}: row of node {node} of {item.seq} is off by {off:.3g} from one token at a time"

    def _row(self, tokens: Sequence[int]) -> Tensor:
        """The row after these tokens, read one at a time."""
        seq = Seq(0, tokens, SamplingParams(), self._plain.spec.max_len)
        held = self._plain.begin(seq)
        assert self._plain.reserve(seq, len(seq) - held), "the target has no memory for this check"
        for at in range(held, len(seq) - 1):
            self._plain.score([Item(seq, at, at + 1)])
        rows = self._plain.score([Item(seq, len(seq) - 1, len(seq) - 1, Tree.root(seq.last))])
        row = rows.raw(0, 0).clone()
        self._plain.release(seq)
        return row

    def _capacity(self) -> int:
        """Tokens that fresh sequences can reserve together, as far as sixteen full contexts."""
        context, taken, seqs = self._target.spec.max_len, 0, list[Seq]()
        for _ in range(16):
            seqs.append(Seq(0, [self._token()], SamplingParams(), context))
            self._target.begin(seqs[-1])
            if not self._target.reserve(seqs[-1], context):
                taken += self._largest(seqs[-1], context)
                break
            taken += context
        self._close(*seqs)
        return taken

    def _largest(self, seq: Seq, high: int) -> int:
        """The most that this sequence can reserve, by halving."""
        low, high = 0, high - 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._target.reserve(seq, middle) else (low, middle - 1)
        return low
