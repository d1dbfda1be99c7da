from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from forerun.core.draft import Draft, Tree, Verdict
from forerun.core.errors import SpecError
from forerun.core.noise import SeededNoise
from forerun.core.params import SamplingParams
from forerun.core.plan import Plan
from forerun.core.seq import Seq, Token
from forerun.drafters.model import ModelDrafter, ModelOptions
from forerun.testing.conformance import check_drafter, toy_law
from forerun.testing.toy import ToyTarget, scripted_law, table_law

LAW = table_law(32, seed=0, order=3)
GREEDY = SamplingParams(max_tokens=60)
SLOTS = 1 << 20


def identity(**options) -> ModelDrafter:
    return ModelDrafter(ToyTarget(LAW, 32), ModelOptions(**options))


@pytest.mark.parametrize("law", ["chosen", "sampled", "distinct"])
@pytest.mark.parametrize("seed", [5, 6])
def test_conformance(law, seed):
    toy = ToyTarget(table_law(12, seed=seed, order=1), 12)
    assert seed != 5 or torch.equal(table_law(12, 5, 1)([1]), toy_law()([1])), "seed 5 is the target itself"
    tally = check_drafter(
        lambda: ModelDrafter(toy, ModelOptions(law=law, chunk=3)), holds=lambda: len(toy._held) + SLOTS - toy.free
    )
    assert 0 < tally.accepted < tally.drafted


@pytest.mark.parametrize("slots", [15, 40, 70])
@pytest.mark.parametrize("max_len", [10, 4096])
def test_conformance_where_memory_or_context_is_short(slots, max_len):
    toy = ToyTarget(table_law(12, seed=5, order=1), 12, max_len=max_len, slots=slots)
    tally = check_drafter(
        lambda: ModelDrafter(toy, ModelOptions(law="distinct", chunk=3)),
        holds=lambda: len(toy._held) + slots - toy.free,
    )
    assert tally.drafted > 0


@pytest.mark.parametrize(("count", "rounds"), [(4, 1), (11, 3)])
def test_case_7_the_target_as_its_own_drafter(decode, plain, count, rounds):
    ask = SamplingParams(max_tokens=count)
    run = decode(LAW, identity(), [[1, 2]], Plan(4), ask, vocab_size=32)
    assert run.tokens == plain(LAW, [[1, 2]], ask, vocab_size=32)[0]
    assert len(run.tokens) == count
    assert len(run.traces) == rounds
    assert run.accepted == run.drafted


def test_case_78_the_free_token_is_kept(decode):
    script = list(range(10, 22))
    law = scripted_law(script, 1, 64)
    drafter = ModelDrafter(ToyTarget(law, 64))
    run = decode(law, drafter, [[1]], Plan(3), SamplingParams(max_tokens=12))
    assert [trace.emitted for trace in run.traces] == [(4,)] * 3


class Forced:
    """A drafter whose tokens from the given depth on are replaced by wrong ones, as if it had been mistaken."""

    def __init__(self, inner: ModelDrafter, depths: list[int]) -> None:
        self.inner, self.depths = inner, iter(depths)
        self.name, self.laws, self.taps = inner.name, inner.laws, inner.taps
        self.begin, self.accept, self.end = inner.begin, inner.accept, inner.end

    def draft(self, seqs, plan, noise):
        tree = self.inner.draft(seqs, plan, noise).trees[0]
        right = next(self.depths)
        tokens = tuple(t if n <= right else (t + 1) % 32 for n, t in enumerate(tree.tokens))
        return Draft((Tree(tokens, tree.parents),))


def test_case_73_both_memories_cover_the_text(decode, plain):
    pattern = [0, 1, 2, 3, 4, 4, 0] * 9
    inner = identity()
    own = inner.target

    def books(live: list[Seq]) -> None:
        for seq in live:
            held = own._held[seq]
            assert held == seq.tokens[: len(held)], "the drafter's memory is of another text"
            assert len(seq) - 1 - len(held) in (0, 1), "it lags by one after full acceptance, else not at all"

    run = decode(LAW, Forced(inner, pattern), [[1, 2, 3]], Plan(4), GREEDY, vocab_size=32, after=books)
    assert run.tokens == plain(LAW, [[1, 2, 3]], GREEDY, vocab_size=32)[0]
    assert run.accepted[:-1] == pattern[: len(run.accepted) - 1]
    full = decode(LAW, identity(), [[1, 2, 3]], Plan(4), GREEDY, vocab_size=32)
    assert full.accepted == full.drafted
    positions = [position for _, _, position in own.fed]
    assert max(positions) < len(run.seqs[0])


def test_no_token_is_read_twice_where_all_is_accepted(decode):
    drafter = identity()
    decode(LAW, drafter, [[1, 2, 3]], Plan(4), GREEDY, vocab_size=32)
    positions = [position for _, _, position in drafter.target.fed]
    assert all(b == a + 1 for a, b in pairwise(positions))


def test_case_69_the_draft_model_s_context_is_shorter(decode, plain):
    ask, prompt = SamplingParams(max_tokens=30), list(range(12))
    for plan in (Plan(4), Plan(4, nodes=8, width=2)):
        short = ToyTarget(LAW, 32, max_len=16)
        drafter = ModelDrafter(short)
        run = decode(LAW, drafter, [prompt], plan, ask, vocab_size=32, max_len=64)
        assert run.tokens == plain(LAW, [prompt], ask, vocab_size=32, max_len=64)[0]
        assert len(run.tokens) == 30
        assert max(position for _, _, position in short.fed) <= 15
        assert run.drafted[0] > 0
        assert run.drafted[3:] == [0] * len(run.drafted[3:])
        assert not short._held, "memory that is of no more use is given back"


def test_a_prompt_beyond_the_draft_model_s_context(decode):
    short = ToyTarget(LAW, 32, max_len=8)
    run = decode(LAW, ModelDrafter(short), [list(range(12))], Plan(4), SamplingParams(max_tokens=5), vocab_size=32)
    assert run.drafted == [0] * 5
    assert short.fed == []


@pytest.mark.parametrize("slots", [0, 10, 20, 30])
def test_short_of_memory_the_text_goes_on(decode, plain, slots):
    prompts = [[1, 2, 3], [4, 5], [6]]
    tight = ToyTarget(LAW, 32, slots=slots)
    run = decode(LAW, ModelDrafter(tight), prompts, Plan(4), SamplingParams(max_tokens=20), vocab_size=32)
    assert [seq.token_ids for seq in run.seqs] == plain(LAW, prompts, SamplingParams(max_tokens=20), vocab_size=32)
    assert tight.free == slots


def test_case_114_memory_is_flat(decode):
    drafter = identity()
    for i in range(300):
        decode(LAW, drafter, [[i % 32, 1]], Plan(4), SamplingParams(max_tokens=8), vocab_size=32)
        assert not drafter.target._held
        assert drafter.target.free == SLOTS
        assert not drafter._open
        assert not drafter._grown


class Remembering(ToyTarget):
    """Shares what earlier sequences left, as a prefix cache does."""

    left: list[int]

    def begin(self, seq: Seq) -> int:
        super().begin(seq)
        left = getattr(self, "left", [])
        same = 0
        while same < min(len(left), len(seq) - 1) and left[same] == seq.tokens[same]:
            same += 1
        self._held[seq] = left[:same]
        return same

    def release(self, seq: Seq) -> None:
        self.left = list(self._held[seq])
        super().release(seq)


def test_case_128_a_restored_prefix(decode):
    drafter = ModelDrafter(Remembering(LAW, 32))
    prompt = [i * 7 % 32 for i in range(32)]
    first, again = (decode(LAW, drafter, [prompt], Plan(4), GREEDY, vocab_size=32) for _ in range(2))
    assert again.tokens == first.tokens
    assert first.accepted == first.drafted
    assert again.accepted == again.drafted
    assert sum(token == prompt[0] and at == 0 for _, token, at in drafter.target.fed) == 1, "read once"


def test_case_154_a_confident_plan_drafts_little(decode):
    flat = table_law(32, seed=3, order=2)
    bold = decode(flat, ModelDrafter(ToyTarget(flat, 32)), [[1]], Plan(8), GREEDY, vocab_size=32)
    shy = decode(flat, ModelDrafter(ToyTarget(flat, 32)), [[1]], Plan(8, confidence=0.99), GREEDY, vocab_size=32)
    assert shy.tokens == bold.tokens
    assert shy.drafted[0] == 1, "the drawn token is kept, nothing below it"
    assert bold.drafted[0] == 8


def test_the_batch_shares_a_forward_a_level():
    drafter = identity()
    seqs = [Seq(i, [i, 1, 2][: i + 1], GREEDY, 4096) for i in range(3)]
    for seq in seqs:
        drafter.begin(seq)
    draft = drafter.draft(seqs, Plan(4), SeededNoise([0] * 3))
    assert draft.sizes == (5, 5, 5)
    assert drafter.target.forwards == 4
    for b, seq in enumerate(seqs):
        alone = identity()
        alone.begin(seq)
        assert alone.draft([seq], Plan(4), SeededNoise([0])).trees[0] == draft.trees[b]


def test_a_long_past_is_read_in_chunks():
    drafter = identity(chunk=10)
    seqs = [Seq(i, [1] * 25, GREEDY, 4096) for i in range(2)]
    for seq in seqs:
        drafter.begin(seq)
    drafter.draft(seqs, Plan(1), SeededNoise([0] * 2))
    assert drafter.target.forwards == 5  # 48 tokens: four chunks, and the last eight beside the roots


def test_greedy_chains_are_the_argmax_of_processed_rows():
    ask = SamplingParams(logit_bias={3: 100.0}, max_tokens=9)
    drafter, seq = identity(), Seq(0, [1], ask, 4096)
    drafter.begin(seq)
    assert drafter.draft([seq], Plan(3), SeededNoise([0])).trees[0].tokens == (1, 3, 3, 3)


def test_chosen_trees_keep_the_likeliest_of_all_that_was_seen():
    drafter, seq = identity(), Seq(0, [1, 2, 3], GREEDY, 4096)
    drafter.begin(seq)
    tree = drafter.draft([seq], Plan(3, nodes=6, width=3), SeededNoise([0])).trees[0]
    tree.check()
    assert tree.drafted == 6

    def chance(path: list[int]) -> float:
        text, total = list(seq.tokens), 0.0
        for token in path:
            total += float(torch.log_softmax(LAW(text), -1)[token])
            text.append(token)
        return total

    level = sorted(((chance([t]), [t]) for t in range(32)), reverse=True)[:3]
    pool = list(level)
    for _ in range(2):
        level = [
            pair
            for _, path in level
            for pair in sorted(((chance([*path, t]), [*path, t]) for t in range(32)), reverse=True)[:3]
        ]
        pool += level
        level = sorted(level, reverse=True)[:3]
    best = [path for _, path in sorted(pool, reverse=True)[:6]]
    drafted = [[tree.tokens[n] for n in tree.path(node)] for node in range(1, len(tree))]
    assert sorted(drafted) == sorted(best)


def test_what_was_never_judged_is_forgotten():
    drafter, seq = identity(), Seq(0, [1, 2], GREEDY, 4096)
    drafter.begin(seq)
    first = drafter.draft([seq], Plan(4), SeededNoise([0]))
    assert drafter.draft([seq], Plan(4), SeededNoise([0])) == first


def test_another_drafter_s_tokens_are_held_where_they_agree():
    drafter, seq = identity(), Seq(0, [1, 2], GREEDY, 4096)
    drafter.begin(seq)
    mine = drafter.draft([seq], Plan(3), SeededNoise([0])).trees[0]
    other = Tree((2, 9, mine.tokens[1], mine.tokens[2]), (-1, 0, 0, 2))
    drafter.accept([seq], Draft((other,)), None, Verdict(((2, 3),), (5,)))
    assert drafter.target.held(seq) == 4
    seq.extend(Token(token) for token in (*mine.tokens[1:3], 5))
    drafter.draft([seq], Plan(3), SeededNoise([0]))


def test_a_target_without_trees_gets_chains():
    class Chains(ToyTarget):
        def __init__(self) -> None:
            super().__init__(LAW, 32)
            self.spec = type(self.spec)("toy", 32, 4096, 0, 0, "float64", "cpu", "toy", trees=False)

    drafter, seq = ModelDrafter(Chains()), Seq(0, [1], GREEDY, 4096)
    drafter.begin(seq)
    assert drafter.draft([seq], Plan(3, width=3), SeededNoise([0])).trees[0].is_chain


def test_nothing_grows_below_the_end_of_an_answer():
    ask = SamplingParams(max_tokens=9, stop_token_ids=frozenset({11}))
    law = scripted_law([10, 11, 12], 1, 64)
    drafter, seq = ModelDrafter(ToyTarget(law, 64)), Seq(0, [1], ask, 4096)
    drafter.begin(seq)
    assert drafter.draft([seq], Plan(4), SeededNoise([0])).trees[0].tokens == (1, 10, 11)


@pytest.mark.parametrize("values", [{"law": "drawn"}, {"chunk": 0}, {"chunk": True}, {"level_cost": -0.1}])
def test_options_out_of_range(values):
    with pytest.raises(SpecError):
        ModelOptions(**values)
