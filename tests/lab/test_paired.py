"""All arms on every prompt: pairs by prompt, order drawn, later turns the same for all, state that is kept."""

import json

import pytest

from forerun.assemble import Config
from forerun.core.errors import SpecError
from forerun.lab.bench import AGAIN, PLAIN, Bench
from forerun.lab.paired import Asked, Samples, Unit, arm_figures, measure, noise, noise_figures
from forerun.lab.run import Run
from forerun.lab.sample import Sample
from forerun.workloads.workload import Prompt, Workload

ASKED = Asked({"max_tokens": 12, "ignore_eos": True}, rounds=2)


def sample(ms, tokens=10, **changes):
    fields = dict(
        answers=1, tokens=tokens, decode_s=ms * tokens / 1e3, first_s=0.1, cpu_s=0.0, steps=tokens, rows=tokens,
        phases={}, emitted=tokens, passes=tokens, drafted=0, accepted=0, tried_at=(), stood_at=(), digest="x",
    )  # fmt: skip
    return Sample(**{**fields, **changes})


def units(*rows):
    """(prompt, turn, round, {arm: sample}) -> Samples."""
    return Samples([Unit("w", *row) for row in rows])


def test_a_pair_is_a_prompt_its_turns_summed_and_rounds_by_median():
    found = units(
        ("p", 0, 0, {"a": sample(10), "b": sample(5)}),
        ("p", 1, 0, {"a": sample(30, 30), "b": sample(5, 30)}),  # (100 + 900) / 40 and (50 + 150) / 40
        ("p", 0, 1, {"a": sample(25), "b": sample(9)}),
        ("p", 0, 2, {"a": sample(999), "b": sample(1)}),
        ("q", 0, 0, {"a": sample(4), "b": sample(2)}),
        ("short", 0, 0, {"a": sample(4, 0), "b": sample(2)}),
    )
    assert found.pairs("a", "b") == [(25.0, 5.0), (4.0, 2.0)]


def test_whole_answers_are_from_asking_to_the_end_and_every_second_weighs():
    found = units(
        ("p", 0, 0, {PLAIN: sample(10, first_s=0.1), "x": sample(5, first_s=0.2)}),  # 0.2 s and 0.25 s
        ("p", 1, 0, {PLAIN: sample(10, first_s=0.3), "x": sample(5, first_s=0.4)}),  # 0.4 s and 0.45 s
        ("p", 0, 1, {PLAIN: sample(10, first_s=0.1), "x": sample(5, first_s=0.2)}),
        ("p", 1, 1, {PLAIN: sample(10, first_s=0.3), "x": sample(5, first_s=0.4)}),
        ("one", 0, 0, {PLAIN: sample(0, 0, first_s=5.4), "x": sample(0, 0, first_s=3.3)}),  # a single token counts too
    )
    assert found.answers(PLAIN, "x") == [pytest.approx((0.6, 0.7)), (5.4, 3.3)]
    assert found.firsts(PLAIN, "x") == [pytest.approx((200.0, 300.0)), pytest.approx((5400.0, 3300.0))]
    figures = arm_figures(found, "x")
    assert figures["speedup"]["value"] == figures["speedup_total"]["value"] == 2.0, "reading is not in these"
    assert figures["speedup_answer"]["value"] == pytest.approx(6.0 / 4.0)
    assert figures["speedup_answer"]["of"] == 2
    assert (figures["first_ms"], figures["baseline_first_ms"]) == (1800.0, 2800.0)


def test_an_answer_s_medians_are_over_rounds():
    found = units(
        *(
            ("p", 0, i, {PLAIN: sample(10, first_s=s), "x": sample(10, first_s=0.1)})
            for i, s in enumerate((0.1, 0.3, 9.0))
        )
    )
    assert found.answers(PLAIN, "x") == [pytest.approx((0.4, 0.2))]


def test_a_verdict_needs_six_prompts():
    def said(count):
        found = units(*((f"p{i}", 0, 0, {PLAIN: sample(2), AGAIN: sample(2), "x": sample(1)}) for i in range(count)))
        return arm_figures(found, "x", floor=noise(found))["verdict"]

    assert (said(5), said(6)) == ("too few prompts", "faster")


def test_figures_of_nothing_are_null():
    found = arm_figures(units(("p", 0, 0, {PLAIN: sample(1, 0), "x": sample(1, 0)})), "x")
    assert found["speedup"] is None
    assert found["ms_per_token"] is None
    assert found["acceptance"] is None
    assert found["verdict"] is None
    assert noise_figures(units(("p", 0, 0, {PLAIN: sample(1, 0), AGAIN: sample(1, 0)}))) is None


def test_the_same_text_is_counted():
    found = units(
        ("p", 0, 0, {PLAIN: sample(2), "x": sample(1)}), ("q", 0, 0, {PLAIN: sample(2), "x": sample(1, digest="y")})
    )
    figures = arm_figures(found, "x")
    assert (figures["same_text"], figures["answers"]) == (1, 2)
    assert figures["speedup"]["value"] == 2.0


def arms(bench):
    return [bench.plain(), bench.plain(AGAIN), bench.arm("ngram")]


def test_every_arm_answers_every_prompt_in_every_round(bench, work):
    found = measure(bench, Run("toy", None, {}), arms(bench), [work], ASKED)
    assert len(found.units) == 6
    assert {unit.round for unit in found.units} == {0, 1}
    assert all(set(unit.samples) == {PLAIN, AGAIN, "ngram"} for unit in found.units)
    assert noise(found).of == 3
    figures = arm_figures(found, "ngram", floor=noise(found))
    assert figures["same_text"] == figures["answers"] == 6
    assert figures["verdict"] == "too few prompts"
    assert figures["speedup_answer"]["of"] == 3
    assert figures["first_ms"] > 0
    assert len(found.to_json()) == 18
    assert found.of("toys").units == found.units


class Spy:
    """An arm that notes when it was asked, and what."""

    def __init__(self, arm, diary):
        self.arm, self.name, self.diary = arm, arm.name, diary

    def answer(self, prompts, params, listener=None):
        self.diary.append((self.name, tuple(map(tuple, prompts)), params["max_tokens"], params.get("seed")))
        return self.arm.answer(prompts, params, listener)


def test_order_is_drawn_turns_are_shared_and_seeds_move_on(bench):
    diary = []
    spied = [Spy(arm, diary) for arm in arms(bench)]
    talk = Workload("talk", tuple(Prompt(f"p{i}", ("one two", "and then")) for i in range(8)), "tests")
    asked = Asked({"max_tokens": 6, "ignore_eos": True, "temperature": 0.7, "seed": 40})
    found = measure(bench, Run("toy", None, {}), spied, [talk], asked)
    warm, real = diary[:3], diary[3:]
    assert {tokens for _, _, tokens, _ in warm} == {6}
    asks = [real[i : i + 3] for i in range(0, len(real), 3)]
    assert len(asks) == 16
    assert len({tuple(name for name, *_ in ask) for ask in asks}) > 2, "the order changes"
    assert all(len({prompts for _, prompts, *_ in ask}) == 1 for ask in asks), "all arms read the same"
    assert [ask[0][3] for ask in asks] == [40 + i // 2 for i in range(16)]
    assert [unit.turn for unit in found.units] == [0, 1] * 8
    first, second = asks[0][0][1][0], asks[1][0][1][0]
    assert len(second) > len(first)


def test_kept_units_are_not_measured_again(bench, work, tmp_path):
    out, diary = tmp_path / "x.json", []
    spied = [Spy(arm, diary) for arm in arms(bench)]
    one = measure(bench, Run("toy", out, {}), spied, [work], ASKED)
    said = len(diary)
    two = measure(bench, Run("toy", out, {}), spied, [work], ASKED)
    assert len(diary) == said
    assert two.to_json() == one.to_json()


def test_what_does_not_fit_is_left_out_and_named(bench, work):
    long = Workload("long", (*work.prompts, Prompt("huge", ("word " * 5000,))), "tests")
    found = measure(bench, Run("toy", None, {}), arms(bench), [long], Asked({"max_tokens": 4, "ignore_eos": True}))
    assert found.left_out == ("long/huge",)
    assert all(unit.prompt != "huge" for unit in found.units)
    with pytest.raises(SpecError, match="no prompt fits"):
        measure(bench, Run("toy", None, {}), arms(bench), [Workload("l", long.prompts[-1:], "t")], ASKED)


def test_a_later_turn_that_does_not_fit_is_named_once_and_those_after_it(bench, tmp_path):
    talk = Workload("talk", (Prompt("p", ("one two", "word " * 5000, "three")), Prompt("q", ("a b", "c"))), "tests")
    asked = Asked({"max_tokens": 4, "ignore_eos": True}, rounds=2)
    for _ in range(2):  # measured, and read back from what was kept
        found = measure(bench, Run("toy", tmp_path / "x.json", {}), arms(bench), [talk], asked)
        assert found.left_out == ("talk/p turn 2", "talk/p turn 3")
        assert {(unit.prompt, unit.turn) for unit in found.units} == {("p", 0), ("q", 0), ("q", 1)}
    first = measure(bench, Run("toy", None, {}), arms(bench), [talk], Asked({"max_tokens": 4}, turns=1))
    assert first.left_out == ()


def test_memory_belongs_to_a_drafter_and_its_first_use(models, work, monkeypatch):
    held = iter(range(0, 100_000, 10))
    monkeypatch.setattr("forerun.lab.machine.resident_mb", lambda: float(next(held)))
    bench = Bench.open(Config(str(models["folder"]), runtime="torch", threads=1))
    two = [bench.arm("ngram:depth=2"), bench.arm("ngram:depth=5")]
    asked = Asked({"max_tokens": 4, "ignore_eos": True})
    measure(bench, Run("toy", None, {}), [*two, bench.bare()], [work], asked)
    assert bench.grown_mb == {"ngram:depth=2": 20.0, "ngram:depth=5": 20.0}, "made, and warmed up once"
    measure(bench, Run("toy", None, {}), [bench.arm("ngram"), bench.arm("suffix")], [work], asked)
    assert bench.grown_mb["ngram"] == bench.grown_mb["ngram:depth=2"] == bench.grown_mb["suffix"] == 20.0
    assert json.dumps(bench.grown_mb)


def test_what_cannot_be_meant_is_refused(bench, work):
    with pytest.raises(SpecError, match="different names"):
        measure(bench, Run("toy", None, {}), [bench.plain(), bench.plain()], [work], ASKED)
    with pytest.raises(SpecError, match="rounds"):
        Asked({"max_tokens": 4}, rounds=0)
    for turns in (0, -1):
        with pytest.raises(SpecError, match=f"turns must be .* got {turns}"):
            Asked({"max_tokens": 4}, turns=turns)
    with pytest.raises(SpecError, match="max_tokens"):
        Asked({})
