"""The distribution of whole answers on a model: who is compared, and that a lossy rule does not pass."""

from dataclasses import replace

import pytest

from forerun.lab.lossless import sampled
from forerun.lab.lossless.asking import questions
from forerun.lab.lossless.findings import findings, overall
from forerun.lab.lossless.sampled import PLANTED, SampledStudy
from forerun.lab.run import Run
from forerun.verify.typical import Typical


@pytest.fixture
def calm_toy(monkeypatch):
    """The toy's own contest is tested elsewhere."""
    figures = {"tests": 9, "distance": 0.1, "pvalue": 0.9, "below_0.05": 0.0, "below_0.01": 0.0}
    lossy = {**figures, "pvalue": 0.0, "below_0.05": 1.0}
    monkeypatch.setattr(
        sampled, "toy_figures", lambda n, seed: {"plain": figures, "speculative": figures, "typical": lossy}
    )


def study(bench, work, engines, **changes):
    asked = questions(bench, [work], 8)[0][:2]
    fields = {"answers": 14, "tokens": 6, "seed": 1, **changes}
    return SampledStudy(bench, engines, asked, **fields)


def test_drawn_drafts_pass_and_the_planted_rule_does_not(bench, work, calm_toy):
    name = "skip:layers=1,law=sampled"
    looked = study(bench, work, {name: bench.arm(name).engine}, calibrate=5)
    figures, samples = looked.measure(Run("lossless", None, {}))
    arms = figures["arms"]
    assert set(arms) == {"plain again", name, PLANTED}
    assert arms[name]["accepted"] > 0
    assert arms[name]["holm"] == arms[name]["pvalue"]  # one drafter
    assert not arms[name]["promises_text"]
    assert arms[PLANTED]["pvalue"] < 0.01
    assert set(arms[name]["by_prompt"]) == {"toys/p0", "toys/p1"}
    assert figures["calibration"]["tests"] == 5
    assert overall(findings({"sampled": figures})) == "lossless"
    texts = [tuple(map(tuple, sample["answers"])) for sample in samples]
    assert len(set(texts)) == len(texts) == 8  # four arms, two prompts, no seed twice


def test_a_lossy_rule_is_found_in_a_drafter_s_arm(bench, work, calm_toy):
    engine = bench.arm("prediction").engine
    engine.parts = replace(engine.parts, verify=Typical(0.0, 0.0))
    figures, _ = study(bench, work, {"prediction": engine}).measure(Run("lossless", None, {}))
    assert figures["arms"]["prediction"]["holm"] < 0.01
    assert overall(findings({"sampled": figures})).startswith("broken: sampled: prediction: another distribution")
