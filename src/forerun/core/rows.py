"""A step's logits behind a narrow face, and the only place where sampling parameters exist.

Temperature, top-k, top-p, min-p, penalties, bias and masks are applied here, to one row on demand, with the history
that the row's own path would have in plain decoding. Greedy is the one-hot law made here, so nothing else needs a
special case for temperature 0. Never a dense [B, N, V] of probabilities: most rows of a step are never looked at.

The order is transformers': repetition, presence and frequency penalties, bias, stop-token floor, grammar; then
temperature, top-k, top-p, min-p.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from forerun.core.errors import BrokenInvariant, SpecError
from forerun.core.noise import Noise, target_slot
from forerun.core.params import SamplingParams
from forerun.core.seq import Logprobs, Seq
from forerun.core.work import Item

NEVER = float("-inf")
FIRST_LOOK = 64  # candidates that a nucleus is first sought among; widened until it fits
WIDEST_LOOK = 4096  # where this many do not suffice, sorting everything at once costs less than a wider look


class DeadEnd(SpecError):
    """No token may follow a path: every one is masked. On a path that is only guessed, nothing to worry about."""


@dataclass(frozen=True, slots=True)
class Support:
    """A processed distribution: `weights` [K] (they sum to about one) over token `ids` [K] ascending, or over all."""

    ids: Tensor | None
    weights: Tensor

    def token(self, index: int) -> int:
        return index if self.ids is None else int(self.ids[index])


class Rows:
    """Rows of one forward: row (b, node) is about the token after `node` of item b's tree.

    `logits` [R, V] holds the rows of item 0's unseen nodes, then of item 1's and so on; `vocab` is how many of the V
    are real tokens (models pad their tables). `hidden` [T, taps * E] are the tapped hidden states of every token that
    was fed, in feeding order, if the target was asked for them.
    """

    def __init__(self, items: Sequence[Item], logits: Tensor, vocab: int, hidden: Tensor | None = None) -> None:
        self.items = items
        self.hidden = hidden
        self._logits = logits[:, :vocab]
        self._first: list[int] = []
        rows = 0
        for item in items:
            self._first.append(rows - item.seen)
            rows += item.fresh
        if rows != logits.shape[0]:
            raise BrokenInvariant(f"the target returned {logits.shape[0]} rows where {rows} were asked for")
        self._argmax: list[int] | None = None

    def raw(self, b: int, node: int) -> Tensor:
        """The target's own logits [V], before any processing."""
        return self._logits[self._first[b] + node]

    def position(self, b: int, node: int) -> int:
        """Position in the sequence of the token that row (b, node) is about."""
        item = self.items[b]
        return len(item.seq) + len(item.nodes.path(node))

    def argmax(self, b: int, node: int) -> int:
        """The likeliest token after processing."""
        params = self.items[b].seq.params
        if params.edits_logits:
            return _first_best(self.edited(b, node))
        row = self._first[b] + node
        if self._logits.device.type == "cpu":
            return _first_best(self._logits[row])
        if self._argmax is None:  # one wait for the device, whatever is visited
            self._argmax = self._logits.argmax(-1).tolist()
        return self._argmax[row]

    def pick(self, b: int, node: int, noise: Noise) -> int:
        """The token that plain decoding would draw here: its randomness depends on (seed, position) alone."""
        if self.items[b].seq.params.greedy:
            return self.argmax(b, node)
        support = self.support(b, node)
        slot = target_slot(self.position(b, node))
        return support.token(noise.pick(b, slot, support.weights, support.ids))

    def probs(self, b: int, node: int) -> Tensor:
        """The processed distribution [V] that the next token is drawn from."""
        if self.items[b].seq.params.greedy:
            row = self.raw(b, node)
            probs = torch.zeros_like(row, dtype=_wide(row.dtype))
            probs[self.argmax(b, node)] = 1.0
            return probs
        support = self.support(b, node)
        if support.ids is None:
            return support.weights
        return support.weights.new_zeros(self._logits.shape[1]).scatter_(0, support.ids, support.weights)

    def support(self, b: int, node: int) -> Support:
        """The processed distribution at temperature > 0, over the tokens that are left."""
        return shape(self.edited(b, node), self.items[b].seq.params)

    def logprobs(self, b: int, node: int, token: int, top: int) -> Logprobs:
        """Log-softmax of the target's own row at `token`, and its `top` likeliest tokens."""
        row = torch.log_softmax(self.raw(b, node).to(_wide(self._logits.dtype)), -1)
        values, ids = row.topk(min(top, row.shape[0]))
        return Logprobs(float(row[token]), tuple(zip(ids.tolist(), values.tolist(), strict=True)))

    def edited(self, b: int, node: int) -> Tensor:
        """Logits [V] after penalties, bias and masks, each with the history of this node's own path."""
        raw = self.raw(b, node)
        row = raw.to(_wide(raw.dtype))
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
    emitted = len(seq.output) + len(path)
    if emitted < params.min_tokens and seq.stop_ids:
        row[_ids(seq.stop_ids, row)] = NEVER
    if params.allowed is not None and not seq.stop_ids.intersection(path):
        row = row.masked_fill(~_allowed(row, seq, path), NEVER)
    if not row.max() > NEVER:
        seq.error = DeadEnd("no token is left to draw: allowed, logit_bias and min_tokens exclude each other")
        raise seq.error
    return row


def shape(row: Tensor, params: SamplingParams) -> Support:
    """The distribution that `params` makes of edited logits [V], temperature > 0."""
    scaled = (row - row.max()) / max(params.temperature, torch.finfo(row.dtype).tiny)  # less is 0 in this dtype
    if params.top_k and params.top_k < row.shape[0]:
        values, ids = scaled.topk(params.top_k)
        probs = torch.softmax(values, -1)
        if params.top_p < 1.0:
            probs = probs[: _reach(probs, params.top_p)]
    elif params.top_p < 1.0:
        probs, ids = _nucleus(scaled, params.top_p)
    else:
        probs = torch.softmax(scaled, -1)
        if not params.min_p:
            return Support(None, probs)
        ids = torch.arange(row.shape[0], device=row.device)
    keep = probs > 0
    if params.min_p:
        keep &= probs >= params.min_p * probs.max()
    ids, order = ids[: probs.shape[0]][keep].sort()
    probs = probs[keep][order]
    return Support(ids, probs / probs.sum())


def _nucleus(scaled: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """Probabilities and ids of the likeliest tokens that together reach top_p, likeliest first."""
    total = torch.logsumexp(scaled, -1)
    look = FIRST_LOOK
    while True:
        values, ids = scaled.topk(min(look, scaled.shape[0]))
        probs = torch.exp(values - total)
        if look >= scaled.shape[0] or float(probs.sum()) > top_p + 1e-6:
            return probs[: _reach(probs, top_p)], ids
        look = look * 8 if look < WIDEST_LOOK else scaled.shape[0]


def _reach(probs: Tensor, top_p: float) -> int:
    """How many of the descending `probs` it takes to reach top_p; at least one."""
    before = torch.cumsum(probs, 0) - probs
    return max(1, int((before < top_p).sum()))


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
    return int(row.to(_wide(row.dtype)).cpu().numpy().argmax())


def _wide(dtype: torch.dtype) -> torch.dtype:
    """Half-precision rows are processed in float32; exact tests bring float64 and keep it."""
    return dtype if dtype == torch.float64 else torch.float32
