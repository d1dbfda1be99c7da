"""The loop itself, enumerated: step after step through `decode_step`, the law of the text is the target's.

Drafts are drawn and judged through one noise, so a draw shared between steps (or between drafting and judging) would
show, as an asked-twice key or as a bent law.
"""

import itertools

import pytest
import torch

from forerun.control.fixed import Fixed
from forerun.core.draft import Draft, Tree
from forerun.core.noise import draft_slot
from forerun.core.params import SamplingParams
from forerun.core.plan import Plan
from forerun.core.seq import Seq
from forerun.engine.step import Parts, decode_step
from forerun.testing.exact import outcomes
from forerun.testing.scripted import ScriptedDrafter
from forerun.testing.toy import ToyTarget, table_law
from forerun.verify.names import VERIFIERS

V, LENGTH = 3, 3


class SampledDrafter(ScriptedDrafter):
    """A chain drawn from another table; the keys are those of real drafters."""

    laws = frozenset({"sampled"})

    def __init__(self, law):
        super().__init__(lambda seq: [])
        self._law = law

    def draft(self, seqs, plan, noise):
        return Draft(tuple(self._chain(b, seq, plan, noise) for b, seq in enumerate(seqs)))

    def _chain(self, b, seq, plan, noise):
        tokens, q = [], {}
        for node in range(min(plan.depth, seq.room)):
            q[node] = torch.softmax(self._law([*seq.tokens, *tokens]), -1)
            tokens.append(noise.pick(b, draft_slot(len(seq) - 1, node), q[node]))
        return Tree.chain(seq.last, tokens, "sampled", q)


def target_law(law, prompt, params):
    """Probability of every text of LENGTH tokens, by the chain rule."""
    text = {}
    for tokens in itertools.product(range(V), repeat=LENGTH):
        chance = 1.0
        for i in range(LENGTH):
            seq = Seq(0, [*prompt, *tokens[:i]], params, 99)
            row = ToyRows(law, seq).probs(0, 0)
            chance *= float(row[tokens[i]])
        if chance:
            text[tokens] = chance
    return text


def ToyRows(law, seq):
    from forerun.core.rows import Rows
    from forerun.core.work import Item

    return Rows([Item(seq, len(seq) - 1, len(seq) - 1, Tree.root(seq.last))], law(seq.tokens)[None], V)


def run_law(law, drafter, verify, prompt, params, depth):
    def run(noise):
        target = ToyTarget(law, V)
        seq = Seq(0, prompt, params, 99)
        target.begin(seq)
        while not seq.finished:
            target.reserve(seq, len(seq) + 8)
            decode_step([seq], Plan(depth), Parts(target, drafter, verify), noise=noise)
        return tuple(seq.token_ids)

    return outcomes(run)


@pytest.mark.parametrize("zeros", [0.0, 0.3])
@pytest.mark.parametrize("name", ["token", "block", "tree", "traversal", "reference", "auto", "match"])
def test_the_text_of_several_steps_has_the_target_s_law(name, zeros):
    law, other = table_law(V, 1, zeros=zeros), table_law(V, 2, zeros=zeros)
    params = SamplingParams(temperature=1.0, max_tokens=LENGTH)
    got = run_law(law, SampledDrafter(other), VERIFIERS[name](), [0, 1], params, 2)
    expected = target_law(law, [0, 1], params)
    assert got.keys() == expected.keys()
    assert max(abs(got[text] - expected[text]) for text in expected) < 1e-12


@pytest.mark.parametrize("params", [{"top_k": 2}, {"top_p": 0.7}, {"presence_penalty": 1.5}, {"temperature": 0.4}])
def test_processed_laws_are_kept_too(params):
    """Failure case 9, 10: the request's filters shape the target at every row, whatever the draft was drawn from.

    A penalty looks at the output, so its expectation is walked with an output of its own.
    """
    law, other = table_law(V, 5), table_law(V, 6)
    params = SamplingParams(**{"temperature": 1.0, "max_tokens": LENGTH, **params})
    got = run_law(law, SampledDrafter(other), VERIFIERS["auto"](), [0, 1], params, 2)
    plain = run_law(law, ScriptedDrafter(lambda seq: []), VERIFIERS["match"](), [0, 1], params, 0)
    assert got.keys() == plain.keys()
    assert max(abs(got[text] - plain[text]) for text in plain) < 1e-12


def test_chosen_trees_keep_the_law():
    law = table_law(V, 7, zeros=0.2)
    drafter = ScriptedDrafter(lambda seq: Tree((seq.last, 0, 2, 1, 1), (-1, 0, 0, 1, 2)) if seq.room > 1 else [])
    params = SamplingParams(temperature=1.0, max_tokens=LENGTH)
    for name in ("match", "tree", "traversal", "reference", "auto"):
        got = run_law(law, drafter, VERIFIERS[name](), [2, 2], params, 2)
        expected = target_law(law, [2, 2], params)
        assert got.keys() == expected.keys()
        assert max(abs(got[text] - expected[text]) for text in expected) < 1e-12


def test_a_lossy_rule_is_caught_by_the_same_gate():
    law, other = table_law(V, 1), table_law(V, 2)
    params = SamplingParams(temperature=1.0, max_tokens=LENGTH)
    drafter = ScriptedDrafter(lambda seq: [0, 1][: seq.room])
    got = run_law(law, drafter, VERIFIERS["typical"](), [0, 1], params, 2)
    expected = target_law(law, [0, 1], params)
    assert max(abs(got.get(text, 0.0) - expected[text]) for text in expected) > 1e-3
    assert not VERIFIERS["typical"]().lossless
    assert Fixed(Plan(2)).plan  # the gate above is what this test is about
    assert other is not law


def test_a_grammar_on_sampled_drafts_keeps_the_law():
    """Forbidden tokens that chance drafted must stay in the tree to be refused; leaving them out would bend the law."""
    law, other = table_law(V, 8), table_law(V, 9)

    def allowed(tokens):
        return [0, 2] if len(tokens) % 2 == 0 else [0, 1]

    params = SamplingParams(temperature=1.0, max_tokens=LENGTH, allowed=allowed)
    for name in ("token", "block", "traversal"):
        got = run_law(law, SampledDrafter(other), VERIFIERS[name](), [0, 1], params, 2)
        plain = run_law(law, ScriptedDrafter(lambda seq: []), VERIFIERS["match"](), [0, 1], params, 0)
        assert got.keys() == plain.keys()
        assert max(abs(got[text] - plain[text]) for text in plain) < 1e-12


def test_stop_tokens_in_sampled_drafts_keep_the_law():
    law, other = table_law(V, 10), table_law(V, 11)
    params = SamplingParams(temperature=1.0, max_tokens=LENGTH, stop_token_ids=frozenset({2}))
    for name in ("token", "block", "traversal"):
        got = run_law(law, SampledDrafter(other), VERIFIERS[name](), [0, 1], params, 2)
        plain = run_law(law, ScriptedDrafter(lambda seq: []), VERIFIERS["match"](), [0, 1], params, 0)
        assert got.keys() == plain.keys()
        assert max(abs(got[text] - plain[text]) for text in plain) < 1e-12
