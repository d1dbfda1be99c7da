"""The target that keeps its sequences in blocks: who holds what, and which slots; the numbers are a runner's.

Guessed nodes lie behind the held tokens in feeding order; a commit moves the accepted path's keys and values to where
a chain would have put them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from forerun.cache.pool import BlockPool, Usage
from forerun.cache.view import Part
from forerun.core.errors import BrokenInvariant, CapacityError, SpecError
from forerun.core.plan import MAX_NODES
from forerun.core.protocols import ModelSpec
from forerun.core.rows import Rows
from forerun.core.seq import Seq
from forerun.core.work import Work
from forerun.targets.holding import Holding
from forerun.targets.runner import Forward, Runner

BLOCK_SIZE = 16
DEFAULT_KV_BYTES = 4 << 30  # address space; the system gives pages when they are written


class PagedTarget:
    """A `Target` over a runner, which it opens.

    `vocab_size` counts real ids (None: the network's), `kv_tokens` is the memory that all open sequences share,
    `max_len` the longest of them. `reuse` lets prompts share beginnings with what was read before. The hidden state of
    a layer is its input, that of the number of layers itself the final norm's output.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        name: str,
        fingerprint: str,
        vocab_size: int | None = None,
        kv_tokens: int | None = None,
        max_len: int | None = None,
        reuse: bool = True,
        block_size: int = BLOCK_SIZE,
    ) -> None:
        facts = runner.facts
        kv_tokens, max_len = _sizes(facts.max_len, max_len, kv_tokens, facts.token_bytes, block_size)
        vocab = _checked_vocab(vocab_size, facts.vocab_rows)
        self.runner = runner
        self.kv_bytes = runner.open(kv_tokens // block_size, block_size, vocab)  # first: it says what is too much
        self.pool = BlockPool(kv_tokens // block_size, block_size, reuse)
        self._open: dict[Seq, Holding] = {}
        self._spec = ModelSpec(
            name=name,
            vocab_size=vocab,
            max_len=max_len,
            hidden_size=facts.hidden_size,
            layers=facts.layers,
            dtype=facts.dtype,
            device=facts.device,
            fingerprint=fingerprint,
            weight_bytes=facts.weight_bytes,
        )

    @property
    def spec(self) -> ModelSpec:
        return self._spec

    @property
    def usage(self) -> Usage:
        """Blocks of KV memory in use, remembered for reuse, and free; `kv_bytes` is what all of them take."""
        return self.pool.usage

    def shallow(self, layers: int, *, kv_tokens: int | None = None) -> PagedTarget:
        """A target of the first `layers` layers, the final norm and the head; weights shared, memory its own."""
        if not 1 <= layers < self.spec.layers:
            raise SpecError(
                f"a shallow copy of {self.spec.name} needs fewer layers than all: got {layers}, "
                f"allowed 1..{self.spec.layers - 1}"
            )
        return self._over(layers, f"{self.spec.name}[:{layers}]", f"{self.spec.fingerprint}:{layers}", kv_tokens)

    def beside(self, *, kv_tokens: int | None = None) -> PagedTarget:
        """The same model with memory of its own, so that nothing but the weights is shared."""
        return self._over(self.spec.layers, self.spec.name, self.spec.fingerprint, kv_tokens)

    def _over(self, layers: int, name: str, fingerprint: str, kv_tokens: int | None) -> PagedTarget:
        return PagedTarget(
            self.runner.first(layers),
            name=name,
            fingerprint=fingerprint,
            vocab_size=self.spec.vocab_size,
            kv_tokens=kv_tokens or self.pool.blocks * self.pool.block_size,
            max_len=self.spec.max_len,
            reuse=self.pool.remember,
            block_size=self.pool.block_size,
        )

    def begin(self, seq: Seq) -> int:
        held = self.pool.open(seq, seq.tokens)
        self._open[seq] = Holding(seq.tokens[:held])
        return held

    def held(self, seq: Seq) -> int:
        return self._holding(seq).held

    def reserve(self, seq: Seq, tokens: int) -> bool:
        held = self._holding(seq).held
        return self._grow(seq, held, held + tokens)

    def score(self, work: Work, keep: bool = False, taps: Sequence[int] = ()) -> Rows:
        self.spec.check_taps(taps)
        for item in work:
            holding = self._holding(item.seq)
            holding.check(item, keep, self.spec.max_len)
            end = item.stop + len(item.nodes)
            if not self._grow(item.seq, holding.held, end):
                raise CapacityError(
                    f"no KV memory left for {item.seq}: {end} tokens wanted, {self.pool.usage} blocks of "
                    f"{self.pool.block_size}; give kv_tokens more or run fewer sequences"
                )
        done = self._forward(work, tuple(taps))
        for item in work:
            self._open[item.seq].feed(item)
            self.pool.record(item.seq, self._open[item.seq].tokens)
        return Rows(
            work,
            done.logits,
            self.spec.vocab_size,
            done.hidden,
            first_best=done.first_best,
            vocabulary=self.runner.vocabulary,
        )

    def commit(self, seqs: Sequence[Seq], paths: Sequence[Sequence[int]]) -> None:
        sources: list[int] = []
        targets: list[int] = []
        for seq, path in zip(seqs, paths, strict=True):
            holding = self._holding(seq)
            nodes = holding.standing(tuple(path))
            for i, node in enumerate(nodes):
                if node != i:
                    sources.append(self._slot(seq, holding.held + node))
                    targets.append(self._slot(seq, holding.held + i))
            holding.settle(nodes)
        if sources:
            self.runner.move(sources, targets)
        for seq in seqs:
            tokens = self._open[seq].tokens
            self.pool.record(seq, tokens)
            self.pool.cut(seq, len(tokens))

    def truncate(self, seq: Seq, length: int) -> None:
        holding = self._holding(seq)
        if not 0 <= length <= holding.held:
            raise BrokenInvariant(f"{seq} has {holding.held} tokens held and cannot be cut to {length}")
        del holding.tokens[length:]
        holding.settle([])
        self.pool.cut(seq, length)

    def release(self, seq: Seq) -> None:
        self.pool.close(seq)
        self._open.pop(seq, None)

    def _holding(self, seq: Seq) -> Holding:
        if seq not in self._open:
            raise BrokenInvariant(f"{seq} is not open in {self.spec.name}: begin it first")
        return self._open[seq]

    def _grow(self, seq: Seq, held: int, length: int) -> bool:
        copies = self.pool.grow(seq, held, length)
        if copies:
            self.runner.copy_blocks(copies)
        return copies is not None

    def _slot(self, seq: Seq, index: int) -> int:
        block, offset = divmod(index, self.pool.block_size)
        return self.pool.table(seq).blocks[block] * self.pool.block_size + offset

    def _forward(self, work: Work, taps: tuple[int, ...]) -> Forward:
        parts: list[Part] = []
        tokens: list[int] = []
        for item in work:
            part = Part(self.pool.table(item.seq), item.start, item.stop - item.start, item.nodes, item.seen)
            if part.end > part.first:
                parts.append(part)
                tokens += item.certain
                tokens += item.nodes.tokens[item.seen :]
        if not tokens:
            hidden = torch.empty(0, len(taps) * self.spec.hidden_size) if taps else None
            return Forward(torch.empty(0, self.spec.vocab_size), [], hidden)
        return self.runner.forward(parts, tokens, taps)


def _sizes(longest: int, max_len: int | None, kv_tokens: int | None, token_bytes: int, block: int) -> tuple[int, int]:
    """Memory and context in tokens, checked against each other and against the network's reach."""
    if max_len is not None and not 1 <= max_len <= longest:
        raise SpecError(f"max_len is {max_len}, the model reaches {longest} tokens: allowed 1..{longest}")
    if kv_tokens is None:
        kv_tokens = min((max_len or longest) + MAX_NODES, max(block, DEFAULT_KV_BYTES // token_bytes))
        kv_tokens = -(-kv_tokens // block) * block
    kv_tokens = kv_tokens // block * block
    if kv_tokens < block:
        raise CapacityError(f"kv_tokens must be at least {block} (one block), got fewer")
    if max_len is not None and kv_tokens < max_len:
        raise CapacityError(
            f"kv_tokens {kv_tokens} cannot hold one sequence of max_len {max_len}: raise kv_tokens or lower max_len"
        )
    return kv_tokens, max_len or min(longest, kv_tokens)


def _checked_vocab(vocab_size: int | None, rows: int) -> int:
    size = rows if vocab_size is None else vocab_size
    if not 1 <= size <= rows:
        raise SpecError(f"vocab_size {size} does not fit the model's table of {rows} rows: allowed 1..{rows}")
    return size
