"""Formats and targets that are visited one at a time: what is said of them, and what is predicted from costs."""

from dataclasses import replace

import pytest

from forerun.assemble import Config
from forerun.core.errors import SpecError
from forerun.lab.bench import Bench
from forerun.lab.costs.formulas import walltime_factor
from forerun.lab.paired import Samples, Unit
from forerun.lab.run import Run
from forerun.lab.sample import Sample
from forerun.lab.sweeps.kin import Candidate, conclusion, facts
from forerun.lab.sweeps.passes import Loader, Visits, visit
from forerun.lab.sweeps.size import answers, costs, run_size, share_out, view
from forerun.lab.sweeps.size_costs import Timing, draft_model, room, run_costs
from forerun.lab.sweeps.weights import _depths, deepened, interplay
from forerun.lab.views import spoken
from forerun.testing.tiny import Tiny, write_folder
from forerun.workloads.workload import Prompt

TIMING = Timing(context=8, blocks=3, repeats=1)


def sample(ms, steps=10, rows=None, phases=None):
    seconds = 1e-3 * ms * steps
    return Sample(1, steps, seconds, 0.1, seconds, steps, rows or steps, phases or {}, steps, steps, 0, 0, (), (), "x")


def test_subjects_are_visited_there_and_back_and_held_one_at_a_time(monkeypatch):
    opened = []
    monkeypatch.setattr(Bench, "open", classmethod(lambda cls, config: opened.append(config.model) or config.model))
    seen = []

    def measure(bench, number, key):
        seen.append((bench, number))
        return Samples([Unit("w", "p", 0, 0, {"plain": sample(10 * len(seen))})])

    found = visit(Loader(), [Config("a"), Config("b")], measure)
    assert seen == [("a", 0), ("b", 1), ("b", 1), ("a", 0)]
    assert opened == ["a", "b", "a"], "what is open is not opened again"
    assert found[0].plain_ms("w") == [10.0, 40.0]
    assert [unit.round for unit in found[0].samples.units] == [0, 1]


def test_rounds_of_a_second_visit_follow_those_of_the_first():
    units = [Unit("w", "p", 0, round, {"plain": sample(1)}) for round in range(2)]
    visits = Visits([Samples(units, ("long",)), Samples(units)])
    assert [unit.round for unit in visits.samples.units] == [0, 1, 2, 3]
    assert visits.samples.left_out == ("long",)


def test_a_drafter_at_every_depth():
    assert deepened("suffix:width=2", (1, 4)) == {1: "suffix:width=2,depth=1", 4: "suffix:width=2,depth=4"}
    with pytest.raises(SpecError, match="--depths"):
        deepened("ngram:depth=2", (1,))


def format(name, best, as_good, unknown=None):
    found = {"best_depth": best, "as_good": as_good, "unknown": unknown}
    return {"name": name, "sets": {"w": {"drafters": {"d": found}}}}


def test_the_interplay_is_claimed_only_where_no_depth_serves_all_formats():
    (said,) = interplay([format("bf16", 8, [4, 8]), format("q4", 4, [2, 4])], ["w"], ["d"])
    assert said.endswith("depth 4 is as good as the best in every format")
    (said,) = interplay([format("bf16", 8, [8]), format("q4", 2, [2, 4])], ["w"], ["d"])
    assert "bf16: 8 (as good: 8); q4: 2 (as good: 2, 4)" in said
    assert said.endswith("the best draft length depends on the format")
    for why in ("answers were too short to time", "too few prompts to say"):
        (said,) = interplay([format("bf16", None, [], why), format("q4", 4, [4])], ["w"], ["d"])
        assert f"bf16: {why}; q4: 4 (as good: 4)" in said
        assert said.endswith("no conclusion about formats")


@pytest.mark.parametrize(("prompts", "best", "as_good"), [(6, 4, [4, 8]), (5, None, [])])
def test_no_depth_is_as_good_as_another_on_too_few_prompts(prompts, best, as_good):
    arms = {"plain": sample(4), "plain again": sample(4), "d2": sample(3), "d4": sample(2), "d8": sample(2)}
    samples = Samples([Unit("w", f"p{i}", 0, 0, arms) for i in range(prompts)])
    found = _depths(samples, {2: "d2", 4: "d4", 8: "d8"})
    assert (found["best_depth"], found["as_good"]) == (best, as_good)
    assert (found["unknown"] is None) == (best is not None)
    assert found["depths"]["4"]["speedup"]["value"] == 2.0


def test_drafters_are_shared_out():
    found = share_out(["a", "a=b"], ["ngram", "a=skip", "a=b=model:path=x"])
    assert found == {"a": ("skip",), "a=b": ("model:path=x",)}
    assert share_out(["a", "b"], ["ngram", "a=skip"]) == {"a": ("skip",), "b": ("ngram",)}


def test_what_a_guess_costs():
    one = sample(5, steps=10, rows=50, phases={"draft": 0.08, "score": 0.02})
    assert costs([one]) == {"draft_ms_per_step": 8.0, "draft_ms_per_guess": 2.0, "verify_ms_per_step": 2.0}
    assert costs([sample(5, phases={"draft": 0.0})])["draft_ms_per_guess"] is None


def tiny(tmp_path, name, *args, **options):
    return Config(str(write_folder(tmp_path / name, Tiny(*args, **options))), runtime="torch", threads=1)


def test_targets_that_differ_in_size_alone_may_be_compared(tmp_path, work, work_clock):
    from forerun.lab.paired import Asked

    small, large = tiny(tmp_path, "small"), tiny(tmp_path, "large", layers=4)
    loader, run = Loader(), Run("size", None, {})
    asked = Asked({"max_tokens": 8, "ignore_eos": True})
    candidates = [Candidate(small, ("ngram", "skip:layers=1")), Candidate(large, ("ngram",))]
    long = replace(work, prompts=(*work.prompts, Prompt("long", ("x" * 600,))))
    figures, samples = run_size(loader, run, candidates, [long], asked)
    assert figures["differ"] is None
    assert len(samples) == 2 * len(work) * (4 + 3)
    assert [target["layers"] for target in figures["targets"]] == [2, 4]
    (found,) = figures["targets"][0]["sets"].values()
    assert found["drafters"]["skip:layers=1"]["draft_ms_per_step"] > found["drafters"]["ngram"]["draft_ms_per_step"] > 0
    assert found["t1_ms"] > 0
    said = spoken(view(figures))
    assert "nothing that the files tell differs beside size; how the models were trained is not known" in said
    assert figures["left_out"] == ["small: toys/long", "large: toys/long"]
    assert "left out, too long for the context: small: toys/long, large: toys/long" in said
    assert "small: ngram, skip:layers=1" in answers(figures, candidates, "texts").shape


def test_another_family_or_format_forbids_conclusions(tmp_path):
    loader = Loader()
    configs = [tiny(tmp_path, "llama"), tiny(tmp_path, "qwen", "qwen2")]
    one, two = (facts(loader.open(config)) for config in configs)
    assert conclusion([one, one]) is None
    assert "another network than llama: qwen2, not llama" in conclusion([one, two])
    assert "weight formats" in conclusion([one, {**one, "formats": ["int8", "q4"]}])
    assert "tokenizer" in conclusion([one, {**one, "tokenizer": None}])


def random(*drafters):
    return Candidate(Config("random:tiny", runtime="torch", threads=1), drafters)


def test_random_weights_are_timed_and_the_rest_is_formula():
    (candidate,) = room([random("ngram:depth=3", "skip:layers=1,depth=2")], TIMING)
    figures, samples = run_costs(Loader(), Run("size", None, {}), [candidate], 0.5, TIMING)
    assert len(samples) == 2 * 3
    (target,) = figures["targets"]
    lookup, shallow = target["drafters"].values()
    assert (lookup["tau"], shallow["tau"]) == (1.875, 1.75)
    assert lookup["draft_ms_per_guess"] == 0
    assert shallow["draft_ms_per_guess"] > 0
    own = [row for row in samples if row["drafter"] == "ngram:depth=3"]
    factors = sorted(walltime_factor(0.5, 3, 0.0, row["verify_s"] / row["plain_s"]) for row in own)
    assert lookup["speedup"]["value"] == pytest.approx(factors[1], rel=1e-5)
    said = spoken(view(figures))
    assert "given, not measured" in said


def test_a_drafter_of_random_weights_is_random_too_and_of_the_same_vocabulary():
    bench = Bench.open(random().config)
    assert draft_model(bench, "ngram") is None
    assert draft_model(bench, "model:path=random:tiny").spec.vocab_size == bench.target.spec.vocab_size
    assert draft_model(bench, "skip:layers=1").spec.layers == 1
    with pytest.raises(SpecError, match="tokenizer"):
        draft_model(bench, "model:path=somewhere")


@pytest.mark.parametrize("spec", ["skip:width=2", "none"])
def test_predictions_are_for_chains(spec):
    with pytest.raises(SpecError, match="chains"):
        room([random(spec)], TIMING)
