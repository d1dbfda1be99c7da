"""Advice held against a grid: the best is told on prompts that it was not chosen on."""

import importlib.util
import json
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from forerun.cli.main import parser
from forerun.core.errors import SpecError
from forerun.lab.advice.against import against, grid_specs, reloaded
from forerun.lab.experiments import views
from forerun.lab.paired import Samples, Unit
from forerun.lab.sample import Sample
from forerun.lab.views import Chart, spoken

ROOT = Path(__file__).parents[3]
SPECS = ["ngram", "suffix:depth=4"]


def sample(decode_s, tokens=10):
    return Sample(
        answers=1, tokens=tokens, decode_s=decode_s, first_s=0.1, cpu_s=0.1, steps=5, rows=9, phases={"draft": 0.01},
        emitted=11, passes=6, drafted=8, accepted=5, tried_at=(4, 2), stood_at=(3, 1), digest="d",
    )  # fmt: skip


def samples(**times):
    """Seconds of each arm, prompt by prompt."""
    names = {"plain": "plain", "again": "plain again", "ngram": "ngram", "suffix": "suffix:depth=4"}
    return Samples(
        [
            Unit("code", f"p{i}", 0, 0, {names[arm]: sample(seconds) for arm, seconds in zip(times, row, strict=True)})
            for i, row in enumerate(zip(*times.values(), strict=True))
        ]
    )


TIMES = samples(
    plain=[1.0, 1.0, 1.0, 1.0], again=[1.0] * 4,
    ngram=[0.8, 0.5, 0.8, 0.5],  # 1.25 on the even prompts, 2 on the odd ones
    suffix=[0.4, 0.8, 0.4, 0.8],  # 2.5 there, 1.25 here: lucky where it is chosen
)  # fmt: skip


def test_the_best_is_chosen_on_one_half_and_told_on_the_other():
    found = against(TIMES, "ngram", SPECS)
    assert (found["prompts"], found["told_on"]) == (4, 2)
    assert (found["best"], found["best_chosen_total"]) == ("suffix:depth=4", 2.5)
    assert found["best_told_total"]["value"] == pytest.approx(1.25)
    assert found["advised_told_total"]["value"] == pytest.approx(2.0)
    assert found["advised_total"]["value"] == pytest.approx(4 / 2.6)
    assert found["loss"] == pytest.approx(1 - 2.0 / 1.25)


def test_none_is_plain_decoding_and_may_be_the_best():
    found = against(TIMES, "none", SPECS)
    assert found["advised_total"]["value"] == found["advised_told_total"]["value"] == 1.0
    assert found["loss"] == pytest.approx(1 - 1 / 1.25)
    slow = samples(plain=[1.0] * 4, again=[1.0] * 4, ngram=[2.0] * 4, suffix=[1.5] * 4)
    found = against(slow, "ngram", SPECS)
    assert (found["best"], found["loss"]) == ("none", 0.5)


def test_samples_come_back_from_a_file_as_they_were():
    again = reloaded(json.loads(json.dumps(TIMES.to_json())))
    assert again.units == TIMES.units
    assert against(again, "ngram", SPECS) == against(TIMES, "ngram", SPECS)


def test_arms_that_cannot_be_timed_are_passed_over():
    """An answer of one step has no time: the best is somebody else, and of such an advice nothing is told."""
    units = [Unit(u.workload, u.prompt, 0, 0, {**u.samples, "suffix:depth=4": sample(0.0, 0)}) for u in TIMES.units]
    assert against(Samples(units), "ngram", SPECS)["best"] == "ngram"
    found = against(Samples(units), "suffix:depth=4", SPECS)
    assert (found["best"], found["loss"], found["advised_told_total"]) == ("ngram", None, None)
    assert (found["told_on"], found["best_told_total"]) == (0, None)
    whole = {"workloads": {"code": found}, "candidates": 2, "prompts": 4}
    assert "code" in spoken(views("advice", {**whole, "seconds": {"advise": 1.0, "grid": 2.0, "ratio": 2.0}}))


def test_both_are_told_on_the_same_prompts():
    """Where one of the two has no time, the other one's is not told either."""
    units = list(TIMES.units)
    units[3] = Unit("code", "p3", 0, 0, {**units[3].samples, "plain": sample(9.0), "suffix:depth=4": sample(0.0, 0)})
    found = against(Samples(units), "ngram", SPECS)
    assert (found["best"], found["told_on"]) == ("suffix:depth=4", 1)
    assert found["advised_told_total"]["value"] == pytest.approx(2.0)  # of p1 alone
    assert found["loss"] == pytest.approx(1 - 2.0 / 1.25)


def test_what_cannot_be_told_is_refused():
    short = Samples([Unit("code", f"p{i}", 0, 0, {"plain": sample(0.0, 0), "ngram": sample(0.0, 0)}) for i in (0, 1)])
    for these in (Samples(TIMES.units[:1]), short):
        with pytest.raises(SpecError, match="give more of them"):
            against(these, "ngram", ["ngram"])


# the script


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    loader = SourceFileLoader("bench_advice_script", str(ROOT / "scripts" / "bench_advice"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


ANSWERS = dict.fromkeys(("relative_to", "batch", "stack", "data", "shape"), "said")
STACK = dict.fromkeys(("model", "fingerprint", "runtime", "weights", "formats", "kv", "isa"), "x")
WORK = {
    "candidates": [{"spec": "ngram"}], "untried": ["suffix:depth=4"], "arms": {"plain": {}, "ngram": {}},
    "recommend": {"spec": "ngram"},
}  # fmt: skip


def test_every_candidate_is_in_the_grid():
    live = {**WORK, "candidates": [], "arms": {"plain": {}, "skip:law=sampled": {}}}
    assert grid_specs({"workloads": {"code": WORK, "x": live}}) == ["ngram", "suffix:depth=4", "skip:law=sampled"]


def test_the_script_writes_what_can_be_shown(script, tmp_path, monkeypatch, capsys):
    asked = []

    def once(words):
        asked.append(parser().parse_args(["lab", *words]))
        bench = {"command": f"forerun lab {words[0]}", **STACK}
        if words[0] == "advise":
            return {"figures": {"workloads": {"code": WORK}}, "bench": bench, "answers": ANSWERS, "seconds": 20.0}
        found = {"figures": {"noise": None}, "bench": bench, "answers": ANSWERS, "seconds": 90.0}
        return {**found, "samples": TIMES.to_json()}

    monkeypatch.setattr(script, "once", once)
    out = tmp_path / "advice.json"
    argv = ["bench_advice", "--seconds", "5", "--prompts", "4", "--tokens", "32", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", argv)
    assert script.main() == 0
    advise, grid = asked
    assert (advise.experiment, advise.prompts, advise.seconds, advise.tokens) == (
        "advise", ["code", "arithmetic", "dialogue", "russian"], 5.0, 32
    )  # fmt: skip
    assert (grid.experiment, grid.workload, grid.prompts, grid.turns) == ("domains", advise.prompts, 4, 1)
    assert grid.drafter == SPECS
    whole = json.loads(out.read_text())
    assert whole["figures"]["seconds"] == {"advise": 20.0, "grid": 90.0, "ratio": 4.5}
    assert len(whole["samples"]) == 16
    assert whole["bench"]["commands"] == ["forerun lab advise", "forerun lab domains"]
    said = capsys.readouterr().out
    assert "4.5 times as long" in said
    shown = views("advice", whole["figures"])
    assert "-60.0%" in spoken(shown)
    (chart,) = [view for view in shown if isinstance(view, Chart)]
    assert [series.ys for series in chart.series] == [(2.0,), (1.25,)]


def test_one_prompt_is_too_few_for_the_script(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bench_advice", "--prompts", "1"])
    with pytest.raises(SystemExit):
        script.main()
    assert "--prompts is a whole number from 2 up" in capsys.readouterr().err
