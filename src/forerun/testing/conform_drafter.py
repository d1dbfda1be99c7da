"""Does a drafter keep the contract? The text must be plain decoding's whatever it proposes, and its books must hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from forerun.core.draft import Draft, Verdict
from forerun.core.noise import Noise, SeededNoise
from forerun.core.params import SamplingParams
from forerun.core.plan import Plan
from forerun.core.protocols import Drafter, Target
from forerun.core.rows import Rows
from forerun.core.seq import Seq
from forerun.core.work import Item
from forerun.drafters.none import NoDrafter
from forerun.engine.step import Parts, decode_step
from forerun.testing.scripted import ScriptedDrafter
from forerun.testing.toy import NextLaw, ToyTarget, table_law
from forerun.testing.watch import WatchedNoise, check_draft, check_drawn
from forerun.verify.match import Match

VOCAB = 12


def alternating(ids: Sequence[int]) -> list[int]:
    """A grammar: even and odd ids take turns."""
    return list(range(len(ids) % 2, VOCAB, 2))


PLANS = (
    Plan(4),
    Plan(1),
    Plan.none(),
    Plan(3, nodes=5, width=2),
    Plan(8, nodes=3),
    Plan(4, nodes=12, width=3, confidence=0.2),
    Plan(6, confidence=0.5),
)
ASKS = (
    SamplingParams(max_tokens=24),
    SamplingParams(max_tokens=30, temperature=0.8, seed=1),
    SamplingParams(max_tokens=1),
    SamplingParams(max_tokens=27, temperature=1.2, top_p=0.9, frequency_penalty=0.4, seed=2),
    SamplingParams(max_tokens=22, repetition_penalty=1.3, stop_token_ids=frozenset({7}), min_tokens=5),
    SamplingParams(max_tokens=20, temperature=0.6, allowed=alternating, seed=3),
)
PROMPTS = ((1, 2, 3, 1, 2), (4,), (5, 6), (2, 2, 2, 2, 2, 2, 2, 2, 2), (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5), (8, 8))


@dataclass(slots=True)
class Tally:
    """What the drafter did during a check; a test may insist that it both hit and missed."""

    drafted: int = 0
    accepted: int = 0


def toy_law() -> NextLaw:
    """The law that drafters are checked against: a table over the last token, so greedy text soon repeats itself."""
    return table_law(VOCAB, seed=5, order=1)


def check_drafter(
    make: Callable[[], Drafter],
    target: Callable[[], Target] | None = None,
    holds: Callable[[], int] | None = None,
    prompts: Sequence[Sequence[int]] = PROMPTS,
) -> Tally:
    """Run a fresh drafter through an engine's life; AssertionError or BrokenInvariant says what it broke.

    `target` makes the model it drafts for, a toy of `toy_law` with a vocabulary of 12 unless given. `holds` counts what
    the drafter keeps in memory: it must be 0 once all sequences have ended. Greedy and sampled requests run in one
    batch; their text must be that of plain decoding.
    """
    target = target or (lambda: ToyTarget(toy_law(), VOCAB))
    plain = [_plain(target(), prompt, ask) for prompt, ask in zip(prompts, ASKS, strict=False)]
    trial = _Trial(make(), target(), plain)
    for i, (prompt, ask) in enumerate(zip(prompts, ASKS, strict=False)):
        trial.open(Seq(i, prompt, replace(ask, prediction=_almost(plain[i])), trial.max_len))
    trial.run()
    for text, seq in zip(plain, trial.seqs, strict=True):
        assert seq.token_ids == text, f"{seq}: the text is {seq.token_ids}, plain decoding writes {text}"
    if holds is not None:
        assert holds() == 0, f"all sequences have ended and the drafter still holds {holds()}"
    return trial.tally


class _Trial:
    """A batch that goes through everything that happens to one."""

    def __init__(self, drafter: Drafter, target: Target, plain: Sequence[Sequence[int]]) -> None:
        self.drafter = drafter
        self.target = target
        self.seqs: list[Seq] = []
        self.tally = Tally()
        self.max_len = target.spec.max_len
        self._guests = _guests(plain)
        self._watched = _Watched(drafter, target.spec.vocab_size, self.tally)

    def open(self, seq: Seq) -> None:
        self.seqs.append(seq)
        self._begin(seq)

    def _begin(self, seq: Seq) -> None:
        """Open a sequence on both sides and read its prompt."""
        held = self.target.begin(seq)
        assert self.target.reserve(seq, len(seq) - held), "the target has no memory for this check"
        self.drafter.begin(seq)
        if held < len(seq) - 1:
            rows = self.target.score([Item(seq, held, len(seq) - 1)], taps=self.drafter.taps)
            if self.drafter.taps:
                self.drafter.read(rows)

    def _end(self, seq: Seq) -> None:
        self.target.release(seq)
        self.drafter.end(seq)

    def run(self) -> None:
        """Steps under changing plans, with guests' drafts and preemptions in between, until all have ended."""
        for step in range(1000):
            live = [seq for seq in self.seqs if not seq.finished]
            if not live:
                return
            if step % 6 == 4:
                self._end(live[-1])
                self._begin(live[-1])
            self._watched.guest = self._guests.get(step % 8)
            self._watched.ask_first = step % 16 < 8
            self._step(live if step % 5 else live[::-1], PLANS[step % len(PLANS)])
        raise AssertionError("the check did not end: sequences stopped growing")

    def _step(self, live: Sequence[Seq], plan: Plan) -> None:
        for seq in live:
            missing = len(seq) - self.target.held(seq)
            assert self.target.reserve(seq, missing + 32), "the target has no memory for this check"
        noise = WatchedNoise(SeededNoise([seq.seed for seq in live]))
        decode_step(live, plan, Parts(self.target, self._watched, Match()), noise=noise)
        for seq in live:
            if seq.finished:
                self._end(seq)


class _Watched:
    """The drafter under test with every draft checked; a guest may speak in its place, asked before or not."""

    def __init__(self, inner: Drafter, vocab: int, tally: Tally) -> None:
        self.name, self.laws, self.taps = inner.name, inner.laws, inner.taps
        self.begin, self.read, self.end = inner.begin, inner.read, inner.end
        self.guest: Drafter | None = None
        self.ask_first = True
        self._inner = inner
        self._vocab = vocab
        self._tally = tally

    def draft(self, seqs: Sequence[Seq], plan: Plan, noise: Noise) -> Draft:
        if self.guest is not None and not self.ask_first:
            return self.guest.draft(seqs, plan, noise)
        draft = self._inner.draft(seqs, plan, noise)
        check_draft(draft, seqs, plan, frozenset(self.laws), self._vocab)
        assert isinstance(noise, WatchedNoise)
        for b, tree in enumerate(draft.trees):
            check_drawn(tree, b, noise.picks)
        return draft if self.guest is None else self.guest.draft(seqs, plan, noise)

    def accept(self, seqs: Sequence[Seq], draft: Draft, rows: Rows, verdict: Verdict) -> None:
        if self.guest is None:
            self._tally.drafted += sum(tree.drafted for tree in draft.trees)
            self._tally.accepted += sum(verdict.accepted)
        self._inner.accept(seqs, draft, rows, verdict)


def _guests(plain: Sequence[Sequence[int]]) -> dict[int, ScriptedDrafter]:
    """By step: one drafter that is always right, and one that is wrong from its second token on."""

    def right(seq: Seq) -> list[int]:
        return list(plain[seq.id][len(seq.output) :])

    def half(seq: Seq) -> list[int]:
        return [token if i == 0 else 0 for i, token in enumerate(right(seq))]

    return {3: ScriptedDrafter(right), 6: ScriptedDrafter(half)}


def _plain(target: Target, prompt: Sequence[int], ask: SamplingParams) -> list[int]:
    """The answer without a draft in sight."""
    seq = Seq(0, prompt, ask, target.spec.max_len)
    target.begin(seq)
    parts = Parts(target, NoDrafter(), Match())
    while not seq.finished:
        assert target.reserve(seq, len(seq) - target.held(seq)), "the target has no memory for this check"
        decode_step([seq], Plan.none(), parts)
    target.release(seq)
    return seq.token_ids


def _almost(text: Sequence[int]) -> tuple[int, ...]:
    """The text with every fifth token replaced."""
    return tuple(0 if i % 5 == 4 else token for i, token in enumerate(text))
