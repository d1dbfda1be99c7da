"""Arms: the same text, counts that agree with the engine's, phases that add up."""

from dataclasses import replace

import pytest

from forerun.core.draft import Tree
from forerun.core.errors import SpecError
from forerun.lab.arms import judged
from forerun.lab.restored import restored
from forerun.lab.sample import Counts, Sample

PARAMS = {"max_tokens": 24, "ignore_eos": True}
SPECS = ("ngram", "suffix:width=3,nodes=8,factor=2", "skip:layers=1,depth=2")


@pytest.fixture
def prompt(bench):
    return bench.base.words.encode("one two three one two three one", bos=False)


def test_every_arm_says_the_same(bench, prompt):
    plain = bench.plain().answer([prompt], PARAMS)
    assert plain.emitted == plain.passes == 24
    assert plain.rows == plain.steps == plain.tokens == 23
    for arm in (bench.bare(), *map(bench.arm, SPECS)):
        found = arm.answer([prompt], PARAMS)
        assert found.digest == plain.digest, arm.name
        assert found.texts == plain.texts, arm.name
        assert found.emitted == 24


@pytest.mark.parametrize("spec", SPECS)
def test_counts_agree_with_one_another(bench, prompt, spec):
    found = bench.arm(spec).answer([prompt], PARAMS)
    assert found.drafted > 0
    assert sum(found.stood_at) == found.accepted
    assert all(stood <= tried for stood, tried in zip(found.stood_at, found.tried_at, strict=True))
    assert all(later <= stood for stood, later in zip(found.stood_at, found.tried_at[1:], strict=False))
    assert sum(found.phases.values()) == pytest.approx(found.decode_s, rel=1e-6)
    assert found.rows >= found.steps
    again = restored(Sample, found.to_json())
    assert replace(again, phases=found.phases) == found
    assert again.phases == pytest.approx(found.phases, abs=1e-6)


def test_batches_are_counted_whole(bench, prompt):
    found = bench.arm("ngram").answer([prompt, prompt[2:], prompt[1:]], PARAMS)
    assert found.answers == 3
    assert found.emitted == 72
    assert found.tokens <= 72 - 3
    assert found.ms_per_token == pytest.approx(3 * 1e3 * found.decode_s / found.tokens)


def test_one_token_is_too_short_to_time(bench, prompt):
    found = bench.plain().answer([prompt], {"max_tokens": 1})
    assert (found.tokens, found.ms_per_token, found.tokens_per_s) == (0, None, None)


def test_what_a_drafter_remembers_is_forgotten(bench, prompt):
    arm = bench.arm("suffix")
    assert arm.answer([prompt], PARAMS).accepted == arm.answer([prompt], PARAMS).accepted


def test_a_listener_hears_every_step_with_signals_and_the_text_stays(bench, prompt):
    arm, steps = bench.arm("skip:layers=1,depth=2"), []
    quiet = arm.answer([prompt], PARAMS)
    heard = arm.answer([prompt], PARAMS, steps.append)
    assert heard.digest == quiet.digest
    assert sum(sum(step.emitted) for step in steps) == 24
    drafted = [tree for step in steps for tree in step.draft.trees if tree.drafted]
    assert drafted
    for tree in drafted:
        assert set(tree.signals) == set(range(1, len(tree)))
        assert all(0 < s.confidence <= 1 and s.entropy >= 0 for s in tree.signals.values())
    lengths = [step.lengths[0] for step in steps]
    assert lengths == [len(prompt) + sum(step.emitted[0] for step in steps[:i]) for i in range(len(steps))]


def test_drafters_of_the_same_options_are_one_and_plans_their_own(bench):
    one, two = bench.arm("skip:layers=1,depth=2"), bench.arm("skip:layers=1,depth=4")
    assert one.engine.parts.drafter is two.engine.parts.drafter
    assert one.engine.controller is not two.engine.controller
    assert bench.arm("skip:layers=1,law=sampled").engine.parts.drafter is not one.engine.parts.drafter
    assert any(name.startswith("skip:") for name in bench.fingerprints())


def test_the_bare_loop_keeps_to_what_it_can(bench, prompt):
    for prompts, params in (
        ([prompt, prompt], PARAMS),
        ([prompt], {**PARAMS, "temperature": 1.0}),
        ([prompt], {"max_tokens": None}),
    ):
        with pytest.raises(SpecError, match="bare loop"):
            bench.bare().answer(prompts, params)


def test_judged_depths():
    tree = Tree((0, 1, 2, 3, 4), (-1, 0, 0, 1, 3))  # 0 has 1 and 2, 1 has 3, 3 has 4
    assert judged(tree, ()) == 1
    assert judged(tree, (1,)) == 2
    assert judged(tree, (2,)) == 1
    assert judged(tree, (1, 3, 4)) == 3
    assert judged(Tree.root(0), ()) == 0


def test_rates_are_of_sums():
    one = Sample(1, 9, 1.0, 0.1, 1.0, 5, 9, {}, 10, 5, 4, 4, (2, 1), (2, 1), "")
    two = Sample(1, 9, 1.0, 0.1, 1.0, 9, 9, {}, 10, 10, 16, 0, (8,), (0,), "")
    found = Counts.of([one, two])
    assert found.tau == 20 / 15
    assert found.acceptance == 4 / 20
    assert found.by_position == [0.2, 1.0]
    assert Counts.of([]).tau is None
