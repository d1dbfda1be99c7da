"""The split of a step and the formulas, on made-up samples that obey them exactly, and on a tiny model."""

import pytest

from forerun.core.errors import SpecError
from forerun.lab.bench import AGAIN, PLAIN
from forerun.lab.costs.stopwatch import PHASES
from forerun.lab.paired import Asked, Samples, Unit
from forerun.lab.phases import (
    Subject,
    by_step,
    costs_by_rows,
    drafter_figures,
    price,
    run_phases,
    split,
    step_cost,
    step_tau,
)
from forerun.lab.phases_view import _seldom, view
from forerun.lab.restored import restored
from forerun.lab.run import Run
from forerun.lab.sample import Sample
from forerun.lab.stats import Interval
from forerun.lab.views import Chart, spoken

QUIET = Interval(1.0, 0.99, 1.01, 4)


def sample(steps, rows, score, draft=0.0, rest=0.0, accepted=0, tried=(), stood=()):
    """Steps of so many rows each; milliseconds of a step's parts."""
    seconds = steps * (score + draft + rest) / 1e3
    tokens = steps + accepted
    phases = {"draft": draft, "score": score, "verify": 0.0, "commit": 0.0, "rest": rest}
    return Sample(
        answers=1,
        tokens=tokens,
        decode_s=seconds,
        first_s=0.1,
        cpu_s=2 * seconds,
        steps=steps,
        rows=steps * rows,
        phases={name: steps * ms / 1e3 for name, ms in phases.items()},
        emitted=tokens + 1,
        passes=steps + 1,
        drafted=steps * (rows - 1),
        accepted=accepted,
        tried_at=tried,
        stood_at=stood,
        digest="same",
        by_rows=((rows, steps, steps * score / 1e3),),
    )


def watched(value):
    return restored(Sample, {**value.to_json(), "phases": {**dict.fromkeys(PHASES, 0.0), **value.phases}, "texts": ()})


def made(drafting, name="d", sweep=None):
    plain = sample(40, 1, 4.0)
    arms = {PLAIN: plain, AGAIN: plain, name: drafting, f"{name}, watched": watched(drafting), **(sweep or {})}
    return Samples([Unit("w", f"p{i}", 0, 0, arms) for i in range(6)])


FAST = dict(steps=10, rows=5, score=5.0, draft=1.0, rest=0.5, accepted=30)
SLOW = dict(steps=20, rows=5, score=4.0, draft=12.0, rest=0.0, accepted=20)


def test_a_prediction_is_the_formula_and_its_error_is_said():
    found = drafter_figures(made(sample(**FAST)), Subject("d", 4, {}, False), {1: 4.0, 5: 5.0}, QUIET)
    p = found["prediction"]
    assert (p["tau"], p["t1_ms"], p["t_verify_ms"], p["draft_ms"], p["rest_ms"]) == (4.0, 4.0, 5.0, 1.0, 0.5)
    assert p["speedup"] == pytest.approx(4.0 * 4.0 / 6.5, abs=1e-5)
    assert p["measured"] == pytest.approx(p["speedup"], abs=1e-4)
    assert p["error_percent"] == pytest.approx(0.0, abs=0.01)
    assert found["advice"].startswith("pays: 2.46")
    off = drafter_figures(made(sample(**FAST)), Subject("d", 4, {}, False), {1: 4.0, 5: 6.3}, QUIET)["prediction"]
    assert off["error_percent"] == pytest.approx(100 * (6.5 / 7.8 - 1), abs=0.01)


def test_a_prediction_is_held_against_the_pooled_speed_not_the_median_prompt():
    """One long answer that gains nothing among short ones that gain a lot: the terms and the clock are of all steps."""
    plain, fast, dull = sample(40, 1, 4.0), sample(**FAST), sample(400, 1, 4.0)
    pairs = [(plain, fast)] * 6 + [(sample(400, 1, 4.0), dull)]
    arms = [{PLAIN: a, AGAIN: a, "d": b, "d, watched": watched(b)} for a, b in pairs]
    samples = Samples([Unit("w", f"p{i}", 0, 0, each) for i, each in enumerate(arms)])
    found = drafter_figures(samples, Subject("d", 4, {}, False), costs_by_rows(samples), QUIET)
    p = found["prediction"]
    tokens, seconds, plain_ms = 6 * 40 + 400, 6 * 0.065 + 1.6, 4.0
    assert p["measured"] == pytest.approx(plain_ms / (1e3 * seconds / tokens), abs=1e-4)
    assert p["error_percent"] == pytest.approx(0.0, abs=0.01)
    assert found["speedup"]["value"] == pytest.approx(2.4615, abs=1e-3)
    assert p["measured"] < 1.4


def test_a_slow_draft_is_called_so_whatever_it_accepts():
    found = drafter_figures(made(sample(**SLOW)), Subject("d", 4, {}, False), {1: 4.0, 5: 4.0}, QUIET)
    assert found["verdict"] == "slower"
    assert "draft too slow: without that cost it would be 2.00 times" in found["advice"]
    assert found["prediction"]["draft_share"] == 0.75


def test_nothing_drafted_is_said():
    found = drafter_figures(made(sample(40, 1, 4.0)), Subject("d", 4, {}, False), {1: 4.0}, QUIET)
    assert found["leviathan"] is None
    assert "nothing was drafted" in found["advice"]
    assert "nothing was drafted" in found["volume"]["warnings"][0]


def test_the_cost_of_rows_is_the_mean_of_all_steps_and_rare_rows_have_none():
    units = [Unit("w", "p", 0, i, {"d": sample(steps, 3, ms)}) for i, (steps, ms) in enumerate(((4, 5.0), (12, 9.0)))]
    units.append(Unit("w", "p", 0, 9, {"d": sample(2, 7, 9.0)}))
    assert costs_by_rows(Samples(units)) == pytest.approx({3: 8.0})  # not 7.0: a long answer has more steps
    cost = step_cost([sample(4, 3, 5.0), sample(2, 7, 9.0)], {1: 4.0, 3: 6.0})
    assert cost.verify == pytest.approx((4 * 6.0 + 2 * 9.0) / 6)  # rare rows count with their own time
    assert step_cost([sample(4, 3, 5.0)], {3: 6.0}) is None
    assert step_tau([]) is None


def test_leviathan_beside_the_measured():
    """alpha 0.5 at a draft cost of a tenth of a plain step: 2 is best of 1, 2, 4, and so it was measured."""
    drafting = sample(100, 5, 4.0, draft=1.6, accepted=93, tried=(100, 50, 25, 12), stood=(50, 25, 12, 6))
    sweep = {
        "d1": sample(100, 2, 4.0, draft=0.4, accepted=50, tried=(100,), stood=(50,)),
        "d2": sample(100, 3, 4.0, draft=0.8, accepted=75, tried=(100, 50), stood=(50, 25)),
    }
    samples = made(drafting, sweep=sweep)
    costs = costs_by_rows(samples)
    found = drafter_figures(samples, Subject("d", 4, {1: "d1", 2: "d2", 4: "d"}, False), costs, QUIET)["leviathan"]
    assert found["alpha"] == pytest.approx(0.5, abs=0.01)
    assert found["draft_cost"] == pytest.approx(0.1)
    assert found["expected_tokens"] == pytest.approx(1.92, abs=0.01)
    assert found["expected_by_position"] == pytest.approx(1.92, abs=0.01)
    assert found["measured_tau"] == pytest.approx(1.92, abs=0.01)
    assert [at["depth"] for at in found["depths"]] == [1, 2, 4]
    for at in found["depths"]:
        assert at["predicted"] == pytest.approx(at["measured"], rel=0.02)
        assert at["measured"] == pytest.approx(at["speedup"]["value"], abs=1e-4)  # all prompts are alike here
    assert (found["best"]["predicted"], found["best"]["measured"]) == (2, 2)
    assert found["best"]["loss"]["value"] == 1.0


def test_the_formulas_are_of_the_steps_that_draft():
    """A lookup that drafts in a quarter of its steps, of which every guess stands: one token in the others."""
    whole, part = 25, 75
    drafting = restored(
        Sample,
        {
            **sample(100, 2, 4.0, accepted=50, tried=(25, 25), stood=(25, 25)).to_json(),
            "rows": whole * 3 + part,
            "by_rows": [(1, part, part * 4e-3), (3, whole, whole * 4e-3)],
        },
    )
    samples = made(drafting)
    each = Subject("d", 2, {2: "d"}, False)
    figures = drafter_figures(samples, each, costs_by_rows(samples), QUIET)
    found = figures["leviathan"]
    assert found["drafting_share"] == pytest.approx(25 / 101, abs=1e-4)
    assert found["expected_tokens"] == pytest.approx(1.5, abs=0.01)  # 3 were it every step
    assert found["expected_by_position"] == pytest.approx(found["measured_tau"], abs=0.01)
    (at,) = found["depths"]
    assert at["predicted"] == pytest.approx(at["measured"], rel=0.01)
    assert "25% of the steps" in _seldom(found)
    assert _seldom({"drafting_share": 0.95}) is None


def test_a_depth_whose_rows_were_not_seen_is_not_predicted():
    drafting = sample(10, 5, 4.0, draft=1.0, accepted=30, tried=(10,), stood=(9,))
    samples = made(drafting, sweep={"d9": sample(10, 5, 4.0)})
    each = Subject("d", 4, {4: "d", 9: "d9"}, False)
    found = drafter_figures(samples, each, costs_by_rows(samples), QUIET)["leviathan"]
    assert [at["predicted"] is None for at in found["depths"]] == [False, True]
    assert found["best"]["predicted"] == 4


def test_price_and_split():
    found = price([sample(**FAST)], [sample(40, 1, 4.0)])
    assert (found["rows_per_token"], found["thrown_away_per_token"]) == (1.25, 0.25)
    assert found["cpu_ms_per_token"] == pytest.approx(3.25)
    assert found["cpu_ratio"] == pytest.approx(3.25 / 8.0, abs=1e-4)
    assert price([], [sample(40, 1, 4.0)]) is None
    parts = split([watched(sample(**FAST))])
    assert sum(parts["ms_per_step"].values()) == pytest.approx(6.5)
    assert sum(parts["ms_per_token"].values()) == pytest.approx(6.5 / 4)
    assert split([]) is None
    assert by_step([sample(**FAST)]) == {"step_ms": 6.5, "outside_ms_per_step": 0.5}
    assert by_step([]) == {"step_ms": None, "outside_ms_per_step": None}


def test_a_real_run_splits_predicts_and_can_be_shown(bench, work, work_clock):
    asked = Asked({"max_tokens": 12, "ignore_eos": True})
    specs = ("skip:layers=1,depth=2", "suffix")
    figures, samples = run_phases(bench, Run("phases", None, {}), specs, [work], asked, (1, 2))
    here = figures["workloads"]["toys"]
    assert set(here["drafters"]) == set(specs)
    assert {"1", "2", "3"} <= set(here["ms_by_rows"])
    for found in (here["plain"], *here["drafters"].values()):
        assert list(found["split"]["ms_per_token"]) == list(PHASES)
        assert found["watch"]["of"] == 3
        assert 0 < found["outside_ms_per_step"] < found["step_ms"]
        assert found["same_text"] == found["answers"] == 3
    skip = here["drafters"]["skip:layers=1,depth=2"]
    assert here["plain"]["split"]["ms_per_step"]["draft"] < skip["split"]["ms_per_step"]["draft"]
    assert skip["prediction"]["tau"] >= 1
    assert [at["depth"] for at in skip["leviathan"]["depths"]] == [1, 2]
    assert skip["price"]["rows_per_token"] >= 1
    assert "skip:layers=1,depth=2" in samples.units[0].samples  # the default is one of the depths, measured once
    views = view(figures)
    chart = next(each for each in views if isinstance(each, Chart))
    assert (chart.kind, [series.name for series in chart.series]) == ("stack", list(PHASES))
    said = spoken(views)
    assert "the stopwatch behind this split" in said
    assert "Leviathan's formulas" in said


@pytest.mark.parametrize("depths", [(0, 1), (2, 2)])
def test_depths_are_different_numbers(bench, work, depths):
    with pytest.raises(SpecError, match="different whole numbers"):
        run_phases(bench, Run("phases", None, {}), ["suffix"], [work], Asked({"max_tokens": 4}), depths)
