"""Eyes between a verifier and its chance: from which row was each token drawn?

A draw is a question to the noise, and the watcher stands where it is asked. So what is compared is what the sampler
was handed, not what it should have been handed. A greedy token is the largest of its row of logits; and where a rule
rejects drafts that chance made, the bonus comes from a residual, so there the target's own processed row is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from forerun.core.draft import Draft, Verdict
from forerun.core.noise import Noise, Slot, target_slot
from forerun.core.protocols import Verifier
from forerun.core.rows import Rows
from forerun.core.vocabulary import Support

FAR = 1e9  # how far what is no number, or masked on one side only, is from any number: files know no infinity


@dataclass(frozen=True, slots=True)
class Seen:
    """A row that a token came from: `values` [K], probabilities or for greedy tokens logits, of `ids` [K] or of all."""

    ids: npt.NDArray[np.int64] | None
    values: npt.NDArray[np.floating]

    @classmethod
    def of(cls, row: Support) -> Seen:
        """A copy: the target may use the row's memory again."""
        ids = None if row.ids is None else row.ids.cpu().numpy().copy()
        return cls(ids, row.weights.cpu().numpy().copy())

    def equals(self, other: Seen) -> bool:
        """To the last bit."""
        if (self.ids is None) != (other.ids is None) or self.values.dtype != other.values.dtype:
            return False
        return _bytes(self.ids) == _bytes(other.ids) and _bytes(self.values) == _bytes(other.values)

    def furthest(self, other: Seen) -> float:
        """The largest difference between values of one token; what a row lacks is 0 there."""
        size = max(row.size for row in (self, other))
        ours, theirs = self._dense(size), other._dense(size)
        with np.errstate(invalid="ignore"):  # -inf is the logit of a masked token
            difference = np.where(ours == theirs, 0.0, np.abs(ours - theirs))
        return float(np.nan_to_num(difference, nan=FAR, posinf=FAR).max())

    @property
    def size(self) -> int:
        """Tokens from 0 up that the row may be about."""
        return len(self.values) if self.ids is None else int(self.ids.max()) + 1

    def _dense(self, size: int) -> npt.NDArray[np.float64]:
        row = np.zeros(size, dtype=np.float64)
        row[slice(len(self.values)) if self.ids is None else self.ids] = self.values
        return row


def _bytes(values: npt.NDArray[np.generic] | None) -> bytes:
    return b"" if values is None else values.tobytes()


Sights = dict[tuple[int, int], Seen]
"""(request, position of the token) -> the row it came from."""


class Watching:
    """A verifier that does as `inner` does, and keeps in `seen` the row of each token that comes of it."""

    def __init__(self, inner: Verifier) -> None:
        self.inner = inner
        self.name, self.laws = inner.name, inner.laws
        self.chains_only, self.greedy_only, self.lossless = inner.chains_only, inner.greedy_only, inner.lossless
        self.seen: Sights = {}

    def __call__(self, draft: Draft, rows: Rows, noise: Noise) -> Verdict:
        asked = _Asked(noise)
        verdict = self.inner(draft, rows, asked)
        for b, (tree, path) in enumerate(zip(draft.trees, verdict.paths, strict=True)):
            seq = rows.items[b].seq
            for node in (0, *path):
                position = rows.position(b, node)
                row = None if tree.drawn else asked.draws.get((b, target_slot(position)))
                if seq.params.greedy:
                    row = Support(None, rows.edited(b, node))
                self.seen[seq.id, position] = Seen.of(row or rows.support(b, node))
        return verdict


class Following(Watching):
    """Plain decoding that is made to write given texts: it draws as always, and the text's token stands in place of
    what was drawn. So there is a plain row for every token of any text. Request n writes text n: the engine must be
    new, since it counts its requests from 0."""

    def __init__(self, inner: Verifier, texts: Sequence[Sequence[int]]) -> None:
        super().__init__(inner)
        self._texts = texts

    def __call__(self, draft: Draft, rows: Rows, noise: Noise) -> Verdict:
        verdict = super().__call__(draft, rows, noise)
        assert not any(verdict.paths), "nothing is drafted where a text is followed"
        seqs = [item.seq for item in rows.items[: len(draft)]]
        return Verdict(verdict.paths, tuple(self._texts[seq.id][len(seq.output)] for seq in seqs))


class _Asked:
    """A noise that keeps the weights of every draw."""

    def __init__(self, noise: Noise) -> None:
        self.draws: dict[tuple[int, Slot], Support] = {}
        self._noise = noise

    def accept(self, b: int, slot: Slot, chance: float) -> bool:
        return self._noise.accept(b, slot, chance)

    def pick(self, b: int, slot: Slot, weights: Tensor, ids: Tensor | None = None) -> int:
        self.draws[b, slot] = Support(ids, weights)
        return self._noise.pick(b, slot, weights, ids)

    def foresee(self, b: int, position: int, weights: Tensor, ids: Tensor | None = None) -> Tensor:
        return self._noise.foresee(b, position, weights, ids)
