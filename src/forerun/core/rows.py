"""A step's logits behind a narrow face, and the only place where sampling parameters exist.

Temperature, top-k, top-p, min-p, penalties, bias and masks are applied here, to one row on demand, with the history
that the row's own path would have in plain decoding. Greedy is the one-hot law made here, so nothing else needs a
special case for temperature 0. Never a dense [B, N, V] of probabilities: most rows of a step are never looked at.

The order is: repetition, presence and frequency penalties, bias, grammar, stop-token floor (where nothing but an end
may follow, the end stands); then what `core/vocabulary.py` does: temperature, top-k, top-p, min-p. transformers adds
its bias before the repetition penalty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from math import isnan

import numpy as np
import torch
from torch import Tensor

from forerun.core.errors import BrokenInvariant, SpecError
from forerun.core.noise import Noise, target_slot
from forerun.core.seq import Logprobs, Seq
from forerun.core.vocabulary import PLAIN, Support, Vocabulary
from forerun.core.work import Item

NEVER = float("-inf")


class DeadEnd(SpecError):
    """No token may follow a path: every one is masked. On a path that is only guessed, nothing to worry about."""


class Rows:
    """Rows of one forward: row (b, node) is about the token after `node` of item b's tree.

    `logits` [R, V] holds the rows of item 0's unseen nodes, then of item 1's and so on; `vocab` is how many of the V
    are real tokens (models pad their tables). `hidden` [T, taps * E] are the tapped hidden states of every token that
    was fed, in feeding order, if the target was asked for them. `first_best` is the argmax of each whole row, padding
    included, -1 where a logit is NaN, if the target found it on its way. `vocabulary` shapes the rows, the plain one
    if it is not given.
    """

    def __init__(
        self,
        items: Sequence[Item],
        logits: Tensor,
        vocab: int,
        hidden: Tensor | None = None,
        first_best: Sequence[int] | None = None,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        self.items = items
        self.hidden = hidden
        self._logits = logits if vocab == logits.shape[1] else logits[:, :vocab]
        self._best = first_best
        self._vocabulary = vocabulary or PLAIN
        self._first: list[int] = []
        rows = 0
        for item in items:
            self._first.append(rows - item.seen)
            rows += item.fresh
        if rows != logits.shape[0]:
            raise BrokenInvariant(f"the target returned {logits.shape[0]} rows where {rows} were asked for")

    def raw(self, b: int, node: int) -> Tensor:
        """The target's own logits [V], before any processing."""
        return self._logits[self.place(b, node)]

    def place(self, b: int, node: int) -> int:
        """Which of the logits' rows it is."""
        return self._first[b] + node

    def position(self, b: int, node: int) -> int:
        """Position in the sequence of the token that row (b, node) is about."""
        item = self.items[b]
        return len(item.seq) + len(item.nodes.path(node))

    def argmax(self, b: int, node: int) -> int:
        """The likeliest token after processing, the first of several; BrokenInvariant if a logit is NaN."""
        if self.items[b].seq.params.edits_logits:
            return _first_best(self.edited(b, node))
        return self.first_best(self.place(b, node))

    def first_best(self, row: int) -> int:
        """The first of the largest logits of a row as the target gave it; BrokenInvariant if one is NaN."""
        if self._best is None and self._logits.device.type != "cpu":  # one wait for the device, whatever is visited
            self._best = self._logits.argmax(-1).tolist()
        if self._best is not None and 0 <= self._best[row] < self._logits.shape[1]:
            return self._best[row]
        return _first_best(self._logits[row])

    def pick(self, b: int, node: int, noise: Noise) -> int:
        """The token that plain decoding would draw here: its randomness depends on (seed, position) alone."""
        if self.items[b].seq.params.greedy:
            return self.argmax(b, node)
        support = self.support(b, node)
        slot = target_slot(self.position(b, node))
        return support.token(noise.pick(b, slot, support.weights, support.ids))

    def likeliest(self, b: int, node: int, count: int) -> tuple[list[int], list[float]]:
        """The likeliest tokens after `node`, likeliest first, and their log-probabilities at temperature 1."""
        return self._vocabulary.likeliest(self.edited(b, node), count)

    def probs(self, b: int, node: int) -> Tensor:
        """The processed distribution [V] that the next token is drawn from."""
        if self.items[b].seq.params.greedy:
            probs = torch.zeros_like(_widened(self.raw(b, node)))
            probs[self.argmax(b, node)] = 1.0
            return probs
        support = self.support(b, node)
        if support.ids is None:
            return support.weights
        return support.weights.new_zeros(self._logits.shape[1]).scatter_(0, support.ids, support.weights)

    def support(self, b: int, node: int) -> Support:
        """The processed distribution at temperature > 0, over the tokens that are left."""
        return self._vocabulary.shape(self.edited(b, node), self.items[b].seq.params)

    def contenders(self, b: int, node: int, count: int) -> Support:
        """`support` for guesses: where nothing rules tokens out, only the `count` likeliest; weights of any sum."""
        params = self.items[b].seq.params
        if params.top_k or params.top_p < 1.0 or params.min_p:
            return self.support(b, node)
        tokens, logs = self.likeliest(b, node, count)
        weights = np.exp((np.array(logs) - logs[0]) / params.temperature)  # these are few, and torch starts slowly
        return Support(torch.from_numpy(np.array(tokens)), torch.from_numpy(weights))

    def of(self, kept: Sequence[int]) -> Rows:
        """The rows of these items alone, which are items 0, 1, … of what is returned."""
        view = copy(self)
        view.items, view._first = [self.items[b] for b in kept], [self._first[b] for b in kept]
        if self.hidden is not None:
            parts = torch.split(self.hidden, [item.stop - item.start + item.fresh for item in self.items])
            view.hidden = torch.cat([parts[b] for b in kept])
        return view

    def logprobs(self, b: int, node: int, token: int, top: int) -> Logprobs:
        """Log-softmax of the target's own row at `token`, and its `top` likeliest tokens."""
        row = torch.log_softmax(_widened(self.raw(b, node)), -1)
        values, ids = row.topk(min(top, row.shape[0]))
        return Logprobs(float(row[token]), tuple(zip(ids.tolist(), values.tolist(), strict=True)))

    def edited(self, b: int, node: int) -> Tensor:
        """Logits [V] after penalties, bias and masks, each with the history of this node's own path."""
        row = _widened(self.raw(b, node))
        item = self.items[b]
        params = item.seq.params
        if not params.edits_logits:
            return row
        nodes = item.nodes
        path = [nodes.tokens[n] for n in nodes.path(node)]
        return edit(row.clone(), item.seq, path)


def edit(row: Tensor, seq: Seq, path: Sequence[int]) -> Tensor:
    """`row` [V], which is used up, edited for the token after `path`, drafted tokens that follow the sequence's own."""
    params = seq.params
    if params.repetition_penalty != 1.0:
        seen, _ = seq.history(row).after(path)
        penalised = torch.where(row > 0, row / params.repetition_penalty, row * params.repetition_penalty)
        row = torch.where(seen, penalised, row)
    if params.presence_penalty or params.frequency_penalty:
        _, counts = seq.history(row).after(path)
        row -= params.presence_penalty * (counts > 0) + params.frequency_penalty * counts
    if params.logit_bias:
        values = torch.tensor(list(params.logit_bias.values()), dtype=row.dtype, device=row.device)
        row[_ids(params.logit_bias, row)] += values
    if params.allowed is not None and not seq.stop_ids.intersection(path):
        row = row.masked_fill(~_allowed(row, seq, path), NEVER)
    best = float(row.max())
    if isnan(best) or (best == NEVER and params.allowed is None):
        raise BrokenInvariant(f"the largest of a row's logits is {best}: the model or the runtime is broken")
    if best == NEVER:
        raise DeadEnd(f"no token is left to draw: allowed lets none of the {row.shape[0]} tokens follow")
    if len(seq.output) + len(path) < params.min_tokens and seq.stop_ids:
        floored = row.index_fill(0, _ids(seq.stop_ids, row), NEVER)
        return floored if floored.max() > NEVER else row
    return row


def _allowed(row: Tensor, seq: Seq, path: Sequence[int]) -> Tensor:
    """The grammar's answer as a bool mask [V]."""
    answer = seq.ask(path)
    if answer is None:
        return torch.ones_like(row, dtype=torch.bool)
    if isinstance(answer, Tensor):
        if answer.shape[0] < row.shape[0]:
            size = row.shape[0]
            seq.error = SpecError(f"allowed returned a mask of {answer.shape[0]} tokens, the vocabulary has {size}")
            raise seq.error
        return answer[: row.shape[0]].to(row.device)
    mask = torch.zeros_like(row, dtype=torch.bool)
    mask[_ids(answer, row)] = True
    return mask


def _ids(tokens: Iterable[int], row: Tensor) -> Tensor:
    """Token ids as an index into `row`; ids outside the vocabulary have no row and are left out."""
    return torch.tensor(
        [token for token in tokens if 0 <= token < row.shape[0]],
        dtype=torch.long,
        device=row.device,
    )


def _first_best(row: Tensor) -> int:
    """Argmax of one row [V]; numpy takes 4 us for 49k floats where torch takes 46."""
    values = _widened(row).cpu().numpy()
    best = int(values.argmax())
    if isnan(values[best]):  # numpy's argmax stops at the first
        raise BrokenInvariant("a row's logits hold NaN: the model or the runtime is broken")
    return best


def _widened(row: Tensor) -> Tensor:
    """Half-precision rows are processed in float32; exact tests bring float64 and keep it."""
    return row if row.dtype in (torch.float32, torch.float64) else row.float()
