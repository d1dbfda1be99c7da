"""Replay is what would have happened: the same steps, rows and tokens as live, for every drafter and shape."""

import pytest

from forerun.core.draft import Tree
from forerun.core.errors import SpecError
from forerun.core.plan import Plan
from forerun.lab.advice.replay import Known, Replay, agreed, can_replay, listened, replay
from forerun.lab.arms import EngineArm
from forerun.models.heads.formats import own
from forerun.testing.heads import random_config, random_head

SPECS = (
    "none",
    "ngram:depth=3",
    "ngram",
    "suffix:depth=6",
    "suffix:width=3,nodes=7,factor=2",
    "skip:layers=1,depth=1",
    "skip:layers=1,depth=3,width=2,nodes=5",
    "skip:layers=1,depth=4,confidence=0.1",
    "first_of:of=ngram+suffix",
    "eagle3:path=HEAD",
    "eagle3:path=HEAD,depth=2,width=1",
    "eagle3:path=HEAD,law=chosen,confidence=0.2",
    "p-eagle:path=HEAD,depth=3,width=2,nodes=5",
    "mtp:path=HEAD,window=8,sinks=2",
    "medusa:path=HEAD",
    "first_of:of=ngram+eagle3[path=HEAD]",
    "mixed:of=ngram[min=1]+suffix+eagle3[path=HEAD]",
)


def with_head(spec, folder):
    """The spec with a random head of each kind that it names in the place of HEAD."""
    for kind in ("eagle3", "p-eagle", "mtp", "medusa"):
        sizes = {} if kind == "medusa" else {"intermediate_size": 40, "heads": 4, "kv_heads": 2, "head_dim": 8}
        if f"{kind}:path=HEAD" in spec or f"{kind}[path=HEAD" in spec:
            own.write(random_head(random_config(kind, 264, 32, 100, **sizes), 3), folder / kind)
            for opener in (":", "["):
                spec = spec.replace(f"{kind}{opener}path=HEAD", f"{kind}{opener}path={folder / kind}")
    return spec


ARMS = {
    "greedy": {"max_tokens": 40, "ignore_eos": True},
    "sampled": {"max_tokens": 40, "ignore_eos": True, "temperature": 0.6, "top_p": 0.9, "seed": 11},
    "ends": {"max_tokens": 40, "temperature": 1.5, "seed": 3},
}


@pytest.mark.parametrize(
    ("spec", "ask"),
    [
        pytest.param(spec, ask, marks=[] if (i + j) % 3 < 2 else pytest.mark.full)
        for i, spec in enumerate(SPECS)
        for j, ask in enumerate(ARMS)
    ],
)
def test_replay_equals_live(bench, spec, ask, tmp_path):
    spec, params = with_head(spec, tmp_path), ARMS[ask]
    prompt = bench.base.words.encode("one two three one two three one two", bos=False)
    said = bench.plain().answer([prompt], params)
    arm = bench.arm(spec)
    steps = []
    plan = arm.engine.controller.plan(None) if spec != "none" else Plan.none()
    live = EngineArm(spec, arm.engine).answer([prompt], params, steps.append)
    known = Known(tuple(prompt), said.ids[0], params)
    base, taps = bench.base, arm.engine.parts.drafter.taps
    if taps:
        known = listened(known, bench.target, taps)
    stops = frozenset() if params.get("ignore_eos") else base.eos_ids
    found = replay(arm.engine.parts.drafter, plan, known, base.vocabulary, bench.target.spec.max_len, stops)
    assert list(found.rows) == [step.sizes[0] for step in steps[1:]]
    assert found.tokens == live.tokens == sum(step.emitted[0] for step in steps[1:])
    assert found.draft_s > 0 or not found.rows


def test_some_guesses_stand_and_some_do_not(bench):
    """Or the equality above would say little."""
    prompt = bench.base.words.encode("one two three one two three one two", bos=False)
    known = Known(tuple(prompt), bench.plain().answer([prompt], ARMS["ends"]).ids[0], ARMS["ends"])
    drafter = bench.arm("skip:layers=1").engine.parts.drafter
    found = replay(drafter, Plan(3), known, bench.base.vocabulary, 4096, frozenset())
    assert len(found.rows) < found.tokens < sum(found.rows)


def test_what_needs_the_target_is_refused(bench, tmp_path):
    head = bench.arm(with_head("eagle3:path=HEAD", tmp_path)).engine.parts.drafter
    with pytest.raises(SpecError, match="measure it live"):
        replay(head, Plan(2), Known((1,), (2, 3), {}), bench.base.vocabulary, 64, frozenset())
    drafter = bench.arm("skip:layers=1,law=sampled").engine.parts.drafter
    assert not can_replay(drafter)
    with pytest.raises(SpecError, match="measure it live"):
        replay(drafter, Plan(2), Known((1,), (2, 3), {}), bench.base.vocabulary, 64, frozenset())


def test_agreed_walks_as_far_as_the_text_goes():
    tree = Tree((9, 1, 2, 3, 3), (-1, 0, 0, 2, 1))
    assert agreed(tree, (2, 3, 5)) == (2, 3)
    assert agreed(tree, (1, 3)) == (1, 4)
    assert agreed(tree, (7,)) == ()
    assert agreed(tree, ()) == ()


def test_seconds_are_drafting_forwards_and_the_rest():
    assert Replay((4, 4, 1), 9, 0.5).seconds(lambda rows: rows / 10, 0.01) == pytest.approx(0.5 + 0.9 + 0.03)
