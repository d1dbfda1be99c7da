"""What stands between the engine and the parts that are plugged into it: their faults hurt nobody else.

A drafter that raises loses its guess, a verifier that raises over one answer ends that answer. Both are what they
guard, so a step knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from forerun.core.draft import Draft, Tree, Verdict
from forerun.core.errors import BrokenInvariant, said
from forerun.core.noise import Noise, Part
from forerun.core.plan import Plan
from forerun.core.protocols import Drafter, Recalls, Verifier
from forerun.core.rows import Rows
from forerun.core.seq import Seq


class Guard:
    """`drafter`, whose exceptions only cost guesses; what was wrong is noted on the sequence, and in `fault`.

    After an exception over one sequence the drafter is told that it ended, and hears no more of it until it begins
    again. After one over a batch, which may be anyone's, all begin anew, and from then on sequences are shown one at a
    time. A drafter with taps would have missed what was read, so there they end.
    """

    def __init__(self, drafter: Drafter) -> None:
        self.fault = ""
        self._open: set[Seq] = set()
        self._apart = False
        self.take(drafter)

    def take(self, drafter: Drafter) -> None:
        """Guard this one from now on."""
        self.drafter = drafter
        self.name, self.laws, self.taps = drafter.name, drafter.laws, drafter.taps

    def recall(self, seq: Seq, held: int) -> int:
        """What the drafter recalls; 0 if it cannot, or says what cannot be."""
        try:
            known = self.drafter.recall(seq, held) if isinstance(self.drafter, Recalls) else 0
            if not isinstance(known, int) or not 0 <= known <= held:
                raise BrokenInvariant(f"recall says {known} of {held} tokens")
            return known
        except Exception as error:
            self._note(seq, error)
            return 0

    def begin(self, seq: Seq) -> None:
        """Begin; without it the sequence has no drafts."""
        self._open.add(seq)
        try:
            self.drafter.begin(seq)
        except Exception as error:
            self._leave([seq], error)

    def read(self, rows: Rows) -> None:
        """Show what was read of the sequences that the drafter knows."""
        for group in self._groups(item.seq for item in rows.items):
            try:
                self.drafter.read(rows if len(group) == len(rows.items) else rows.of(group))
            except Exception as error:
                self._leave([rows.items[b].seq for b in group], error)

    def draft(self, seqs: Sequence[Seq], plan: Plan, noise: Noise) -> Draft:
        """A tree for each sequence, its root where none was to be had."""
        known = [b for b, seq in enumerate(seqs) if seq in self._open]
        trees = list(Draft.roots(seq.last for seq in seqs).trees)
        if known:
            part = noise if len(known) == len(seqs) else Part(noise, known)
            for b, tree in zip(known, self._drafted([seqs[b] for b in known], plan, part), strict=True):
                trees[b] = tree
        return Draft(tuple(trees))

    def _drafted(self, seqs: Sequence[Seq], plan: Plan, noise: Noise) -> Sequence[Tree]:
        """One tree for each; if the drafter fails over a batch, it is asked for each alone."""
        try:
            draft = self.drafter.draft(seqs, plan, noise)
            if len(draft) == len(seqs):
                return draft.trees
            raise BrokenInvariant(f"{len(draft)} trees were drafted for {len(seqs)} sequences")
        except Exception as error:
            self.fault = said(error)
            if len(seqs) == 1:
                self._leave(seqs, error)
                return [Tree.root(seqs[0].last)]
        return [tree for b, seq in enumerate(seqs) for tree in self._drafted([seq], plan, Part(noise, [b]))]

    def accept(self, seqs: Sequence[Seq], draft: Draft, rows: Rows, verdict: Verdict) -> None:
        """Show the verdict on the sequences that the drafter knows."""
        for group in self._groups(seqs):
            try:
                if len(group) == len(seqs):
                    self.drafter.accept(seqs, draft, rows, verdict)
                else:
                    trees = Draft(tuple(draft.trees[b] for b in group))
                    part = Verdict(tuple(verdict.paths[b] for b in group), tuple(verdict.bonus[b] for b in group))
                    self.drafter.accept([seqs[b] for b in group], trees, rows.of(group), part)
            except Exception as error:
                self._leave([seqs[b] for b in group], error)

    def end(self, seq: Seq) -> None:
        """End, if it began."""
        if seq in self._open:
            try:
                self.drafter.end(seq)
            except Exception as error:
                self._note(seq, error)
            self._open.discard(seq)

    def _groups(self, seqs: Iterable[Seq]) -> list[list[int]]:
        """Which of `seqs` are shown together: all that the drafter knows, or each alone."""
        known = [b for b, seq in enumerate(seqs) if seq in self._open]
        return [[b] for b in known] if self._apart else [known] * bool(known)

    def _leave(self, seqs: Sequence[Seq], error: Exception) -> None:
        """What the drafter knows of these sequences cannot be relied on."""
        for seq in seqs:
            self._note(seq, error)
            self.end(seq)
        if len(seqs) > 1:
            self._apart = True
            for seq in seqs if not self.taps else ():
                self.begin(seq)

    def _note(self, seq: Seq, error: Exception) -> None:
        self.fault = said(error)
        seq.drop(self.fault)


class Judge:
    """`verify`; what it raises over one answer is noted as that answer's own error, and raised."""

    def __init__(self, verify: Verifier) -> None:
        self.name, self.laws, self.lossless = verify.name, verify.laws, verify.lossless
        self.chains_only, self.greedy_only = verify.chains_only, verify.greedy_only
        self._verify = verify

    def __call__(self, draft: Draft, rows: Rows, noise: Noise) -> Verdict:
        try:
            return self._verify(draft, rows, noise)
        except Exception:
            for b, tree in enumerate(draft.trees):
                self._try(Draft((tree,)), rows.of([b]), Part(noise, [b]))
            raise

    def _try(self, draft: Draft, rows: Rows, noise: Noise) -> None:
        """Whether it is over this answer that it raises: one row of the target's may be no distribution."""
        try:
            self._verify(draft, rows, noise)
        except Exception as error:
            rows.items[0].seq.error = rows.items[0].seq.error or error
