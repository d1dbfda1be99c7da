"""Identity: what is the same is counted with its volume, what differs is listed with its margin."""

from dataclasses import replace

import pytest

from forerun.core.draft import Verdict
from forerun.lab.lossless.asking import prediction, promises_text, questions, spread
from forerun.lab.lossless.findings import findings
from forerun.lab.lossless.identity import Identity
from forerun.lab.run import Run
from forerun.verify import VERIFIERS
from forerun.verify.auto import Auto

SPECS = ("ngram", "prediction", "skip:layers=1,law=sampled")


class Gullible(Auto):
    """Believes whatever was drafted, and says that it is `auto`."""

    def __call__(self, draft, rows, noise):
        verdict = super().__call__(draft, rows, noise)
        paths = tuple((1,) if len(tree) > 1 else () for tree in draft.trees)
        bonus = tuple(rows.pick(b, path[-1] if path else 0, _Deaf(noise)) for b, path in enumerate(paths))
        return Verdict(paths, bonus) if any(paths) else verdict


class _Deaf:
    def __init__(self, noise):
        self._noise = noise

    def pick(self, b, slot, weights, ids=None):
        return self._noise.pick(b, slot, weights, ids)


@pytest.fixture
def asked(bench, work):
    return questions(bench, [work], 10)[0]


def identity(bench, asked, engines, **changes):
    fields = {"samplings": ("greedy", "sampled", "pure"), "batch": 2, "tokens": 10, "seed": 7, **changes}
    return Identity(bench, engines, asked, **fields)


def test_the_same_text_and_how_much_was_tried(bench, asked):
    engines = {spec: bench.arm(spec).engine for spec in SPECS}
    figures, samples = identity(bench, asked, engines).measure(Run("lossless", None, {}))
    for name in ("plain again", "ngram", "prediction"):
        assert set(figures["arms"][name]) == {"greedy", "sampled", "pure"}
        assert all(arm["same"] == arm["of"] == 3 for arm in figures["arms"][name].values())
    told = figures["arms"]["prediction"]
    assert all(arm["accepted"] > 0 for arm in told.values())
    drafted, accepted = (sum(arm[count] for arm in told.values()) for count in ("drafted", "accepted"))
    assert accepted < drafted  # odd predictions are spoilt
    drawn = SPECS[2]
    assert set(figures["arms"][drawn]) == {"greedy"}  # at temperature 0 nothing is drawn
    assert figures["excluded"] == {drawn: ["sampled", "pure"]}
    assert len(samples) == 3 * 3 * 3 + 3
    assert {sample["prompt"] for sample in samples} == {"toys/p0", "toys/p1", "toys/p2"}


def test_a_broken_verifier_is_found_with_position_tokens_and_margin(bench, asked):
    engine = bench.arm("prediction").engine
    engine.parts = replace(engine.parts, verify=Gullible())
    looked = identity(bench, asked, {"prediction": engine})
    figures, _ = looked.measure(Run("lossless", None, {}))
    found = [d for arm in figures["arms"]["prediction"].values() for d in arm["divergences"]]
    assert found  # spoilt predictions are believed
    for difference in found:
        assert difference["plain"]["id"] != difference["drafted"]["id"]
        assert isinstance(difference["plain"]["text"], str)
        assert difference["position"] == 0  # the odd question's first guess is wrong
        assert difference["prompt"] == "toys/p1"
        assert {"logits", "decided", "near_tie"} <= set(difference)
        assert difference["decided"] > 0  # plain decoding drew the winner
    said = findings({"runtime": "native", "dtype": "float32", "identity": figures})
    assert said[0]["kind"] == "broken"
    assert all(arm["same"] == arm["of"] for arm in figures["arms"]["plain again"].values())


def test_an_answer_that_ends_early_is_a_difference_without_a_margin(bench, asked):
    looked = identity(bench, asked, {})
    found = looked._difference(asked[0], {}, [5, 6, 7], [5, 6])
    assert found == {"position": 2, "near_tie": False, "plain": found["plain"], "drafted": None}
    assert found["plain"]["id"] == 7


def test_a_measurement_that_was_cut_short_goes_on(bench, asked, tmp_path):
    out = tmp_path / "l.json"
    looked = identity(bench, asked, {"ngram": bench.arm("ngram").engine}, samplings=("greedy",))
    run = Run("lossless", out, {"a": 1})
    whole, _ = looked.measure(run)
    assert run.done == 2
    again = Run("lossless", out, {"a": 1})
    assert again.resumed == 2
    broken = Identity(bench, looked.engines, asked, ("greedy",), 2, 10, seed=99)  # kept units are not measured again
    assert broken.measure(again)[0] == whole


def test_who_promises_the_text(bench):
    drawn, chosen = bench.arm("skip:layers=1,law=sampled").engine, bench.arm("ngram").engine
    assert promises_text(drawn, greedy=True)
    assert not promises_text(drawn, greedy=False)
    assert promises_text(chosen, greedy=False)
    for name, kept in (("match", True), ("block", False), ("typical", False)):
        chosen.parts = replace(chosen.parts, verify=VERIFIERS[name]())
        assert promises_text(chosen, greedy=False) == kept
        assert promises_text(chosen, greedy=True) == (name != "typical")


def test_predictions_are_right_and_wrong_in_turn():
    answer = list(range(9))
    assert prediction(answer, 0) == tuple(answer)
    assert prediction(answer, 1) == tuple(range(3, 9))


def test_questions_are_spread_and_long_ones_left_out(bench, work):
    found, left_out = questions(bench, [work], bench.target.spec.max_len - 40)
    assert len(found) + len(left_out) == 3
    assert spread(list(range(10)), 3) == [0, 3, 6]
    assert spread([1, 2], 5) == [1, 2]
