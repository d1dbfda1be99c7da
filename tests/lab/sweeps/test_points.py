"""Sweeps: what a point holds, where arms cross, what is drawn; batches and prompts of exact lengths."""

import itertools

import pytest

from forerun.assemble import Config
from forerun.core.errors import CapacityError, LoadError, SpecError
from forerun.lab.arms import Listener
from forerun.lab.bench import Bench
from forerun.lab.paired import Asked
from forerun.lab.run import Run
from forerun.lab.sample import Sample
from forerun.lab.sweeps.batch import batches, engine_for, filled, run_batch
from forerun.lab.sweeps.context import Cutter, LongText, lengths, long_text, run_context
from forerun.lab.sweeps.groups import Group, measure_groups
from forerun.lab.sweeps.points import crosses, crossings, sweep, view
from forerun.lab.sweeps.temperature import drawn, notes, run_temperature
from forerun.lab.views import Chart, spoken
from forerun.testing.tiny import Tiny, write_folder
from forerun.workloads.workload import Prompt, Workload

TEXTS = ("one two one two one", "the sea was the sea", "a b a b a b", "red red red", "no no yes no", "up down up")
WORK = Workload("mine", tuple(Prompt(f"p{i}", (text,)) for i, text in enumerate(TEXTS)), "tests")
FIXED = {"max_tokens": 12, "ignore_eos": True}


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    folder = write_folder(tmp_path_factory.mktemp("long") / "tiny", Tiny(max_len=512, sharpness=1.0))
    return Bench.open(Config(str(folder), runtime="torch", threads=1, kv_tokens=2048))


def at(value, **verdicts):
    return {"value": value, "arms": {name: {"verdict": verdict} for name, verdict in verdicts.items()}}


@pytest.mark.parametrize(
    ("verdicts", "where"),
    [
        (["faster", "faster"], None),
        (["faster", "no difference"], 2),
        (["slower", "faster"], 1),
        (["too few prompts", "slower"], 2),
        ([None, "too few prompts"], None),
    ],
)
def test_an_arm_crosses_where_it_is_not_faster_beyond_the_noise(verdicts, where):
    points = [at(value, ngram=verdict) for value, verdict in enumerate(verdicts, 1)]
    assert crosses(points, "ngram") == where
    assert sweep(points[::-1], ["ngram"]) == {"points": points, "crosses": {"ngram": where}}


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        (["faster", "faster"], "faster than plain decoding at every batch measured, 1 to 2"),
        (["faster", "slower"], "not faster than plain decoding from batch 2 on"),
        (["no difference", "faster"], "not faster than plain decoding at batch 1, but again at 2"),
        ([None, "too few prompts"], "too few prompts to say"),
        (
            ["faster", "too few prompts"],
            "faster than plain decoding at batch 1; too few prompts to say at batch 2",
        ),
        (
            ["too few prompts", "no difference"],
            "not faster than plain decoding from batch 2 on; too few prompts to say at batch 1",
        ),
    ],
)
def test_crossings_are_said_in_words(verdicts, said):
    points = [at(value, ngram=verdict) for value, verdict in enumerate(verdicts, 1)]
    (note,) = crossings("batch", sweep(points, ["ngram"]))
    assert note.text == f"ngram: {said}"


def test_batches_share_no_prompt_and_a_round_asks_the_same_ones_again():
    prompts = [(i,) for i in range(8)]
    for size, count in ((1, 8), (2, 4), (3, 2), (8, 1)):
        groups = batches(prompts, size, 2, 0)
        first, second = groups[:count], groups[count:]
        assert {len(group.prompts) for group in groups} == {size}
        asked = list(itertools.chain(*(group.prompts for group in first)))
        assert len(set(asked)) == len(asked) == count * size
        assert [(group.name, group.prompts) for group in first] == [(group.name, group.prompts) for group in second]
        assert len({group.name for group in first}) == count
        assert ({group.round for group in first}, {group.round for group in second}) == ({0}, {1})
        order = list(itertools.chain(*(group.prompts for group in batches(prompts, 1, 1, 0))))
        assert asked == order[: count * size], "the order, and so who is left out, is the same at each size"
        assert [group.first for group in first] == list(range(0, count * size, size))
    assert batches(prompts, 1, 1, 0) != batches(prompts, 1, 1, 1)


def test_repetitions_make_no_interval_out_of_two_batches(bench):
    figures, _ = run_batch(bench, Run("batch", None, {}), (3,), ["ngram"], [WORK], Asked(FIXED, rounds=4))
    ((found,),) = (made["points"] for made in figures["sets"].values())
    assert (found["batches"], found["arms"]["ngram"]["prompts"], found["noise"]["of"]) == (2, 2, 2)
    assert found["arms"]["ngram"]["speedup"]["low"] is None
    said = spoken(view(figures))
    assert "different batches, none with a prompt in common: 2 of 3; below 6 there is no interval" in said


def test_each_prompt_of_a_batch_draws_for_itself(bench):
    arm, drawn_alike = bench.plain(), {"max_tokens": 12, "ignore_eos": True, "temperature": 1.0, "seed": 3}
    ids = bench.tokens([{"role": "user", "content": TEXTS[0]}])
    both = arm.answer([ids, ids], drawn_alike).ids
    alone = [arm.answer([ids], {**drawn_alike, "seed": seed}).ids[0] for seed in (3, 4)]
    assert list(both) == alone
    assert both[0] != both[1]


def test_seeds_move_on_from_group_to_group():
    seen = []

    class Heard:
        name = "a"

        def answer(self, prompts, params, listener=None):
            seen.append(params["seed"])
            return Sample(1, 1, 0.1, 0.1, 0.1, 1, 1, {}, 2, 2, 0, 0, (), (), "x")

    groups = [Group("one", ((1,), (2,)), first=0), Group("two", ((3,), (4,)), first=2)]
    asked = Asked({"max_tokens": 4, "temperature": 1.0, "seed": 7})
    measure_groups(Run("batch", None, {}), [Heard()], groups, asked, key="k", workload="w")
    assert seen == [7, 7, 9]  # the first is the warm-up


def test_the_largest_batch_has_room_and_different_prompts(bench):
    config = bench.base.config
    found = engine_for(Config(config.model, runtime="torch"), (1, 4), ["ngram:depth=4"], [WORK], 12)
    assert found["max_batch"] == 4
    lengths = [len(bench.tokens([{"role": "user", "content": text}])) for text in TEXTS]
    assert found["kv_tokens"] >= sum(sorted(lengths)[-4:]) + 4 * (12 + 4)
    with pytest.raises(SpecError, match="as many different prompts, got 6"):
        engine_for(config, (8,), ["ngram"], [WORK], 12)
    with pytest.raises(CapacityError, match="kv_tokens is 64"):
        engine_for(Config(config.model, runtime="torch", kv_tokens=64), (4,), ["ngram"], [WORK], 12)


def test_a_batch_sweep_times_whole_batches(bench):
    figures, samples = run_batch(bench, Run("batch", None, {}), (1, 3), ["ngram"], [WORK], Asked(FIXED))
    (name,) = figures["sets"]
    one, three = figures["sets"][name]["points"]
    assert (one["value"], three["value"]) == (1, 3)
    assert (one["arms"]["ngram"]["prompts"], three["arms"]["ngram"]["prompts"]) == (6, 2)
    assert one["arms"]["plain"]["filled"] == three["arms"]["plain"]["filled"] == 1.0
    assert three["arms"]["plain"]["tokens"] == 2 * 3 * 11
    assert three["arms"]["ngram"]["same_text"] == 2
    assert (one["noise"]["of"], three["noise"]["of"]) == (6, 2)
    answers = {unit.samples["plain"].answers for unit in samples.units}
    assert {(row["point"], row["answers"]) for row in samples.to_json()} == {(1, 1), (3, 3)}
    assert answers == {1, 3}
    said = spoken(view(figures))
    assert "plain again" in said
    assert "filled" in said
    assert {chart.log_x for chart in view(figures) if isinstance(chart, Chart)} == {True}


def test_a_batch_that_ends_unevenly_was_not_full():
    class Two:
        answers, steps = 2, 9  # after the step of the first tokens

        def __init__(self, passes):
            self.passes = passes

    assert filled([Two(20)]) == 1.0
    assert filled([Two(15)]) == 0.75


def test_a_prompt_that_does_not_fit_is_named(bench):
    long = Workload("long", (Prompt("war", ("x" * 600,)),), "tests")
    with pytest.raises(SpecError, match="long/war has"):
        run_batch(bench, Run("batch", None, {}), (1,), [], [long], Asked(FIXED))


TEXT = LongText("alphabet", "".join(chr(33 + i % 90) for i in range(900)))


def test_prompts_have_exactly_so_many_tokens_and_end_with_the_question(bench):
    cutter = Cutter(bench, TEXT, "What is this?")
    for length in (cutter.shortest, 100, 400):
        pieces = [cutter.prompt(length, part, 3) for part in range(3)]
        assert {len(ids) for ids in pieces} == {length}
        assert len(set(pieces)) == 3
        said = bench.base.words.decode(list(pieces[1]))
        assert "What is this?" in said
        assert said.startswith(bench.base.words.decode(bench.tokens([{"role": "user", "content": ""}]))[:4])
    whole = bench.tokens([{"role": "user", "content": f"{TEXT.text[:50]}\n\nWhat is this?"}])
    assert cutter.prompt(len(whole), 0, 3) == tuple(whole)
    with pytest.raises(SpecError, match="longer text"):
        cutter.prompt(cutter.longest + 1, 0, 3)
    with pytest.raises(SpecError, match="cannot be cut"):
        cutter.prompt(cutter.shortest - 1, 0, 3)


def test_lengths_reach_to_the_limit_of_the_model_or_of_the_text(bench):
    cutter = Cutter(bench, TEXT)
    assert lengths(None, (128, 256, 1024), cutter, 500) == [128, 256, 500]
    assert lengths(None, (128, 256, 8192), cutter, 8000) == [128, 256, cutter.longest]
    assert lengths((300, 200), (), cutter, 500) == [200, 300]
    with pytest.raises(SpecError, match="at most 500"):
        lengths((501,), (), cutter, 500)
    with pytest.raises(SpecError, match="the shortest has"):
        lengths(None, (128,), cutter, 20)


def test_a_long_text_is_a_file_or_the_suites(tmp_path):
    (tmp_path / "a.txt").write_text("words", encoding="utf-8")
    assert long_text(tmp_path / "a.txt").text == "words"
    assert len(long_text(None).text) > 20_000
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "c.txt").write_text(" \n")
    for name, hint in (("b.txt", "UTF-8"), ("c.txt", "empty"), ("d.txt", "cannot be read")):
        with pytest.raises(LoadError, match=hint):
            long_text(tmp_path / name)


def test_a_context_sweep_asks_each_piece_at_each_length(bench):
    cutter = Cutter(bench, TEXT)
    figures, samples = run_context(
        bench, Run("context", None, {}), cutter, (128, 256), 3, ["suffix"], Asked(FIXED, rounds=2)
    )
    points = figures["sets"]["alphabet"]["points"]
    assert [point["value"] for point in points] == [128, 256]
    assert {point["arms"]["suffix"]["prompts"] for point in points} == {3}
    assert all(point["arms"]["plain"]["first_ms"] > 0 for point in points)
    assert len(samples.units) == 2 * 3 * 2
    assert "suffix: too few prompts to say" in spoken(view(figures))


def test_groups_are_logged_with_their_point_and_kept_ones_not_measured_again(bench):
    heard, kept = [], Run("context", None, {})

    def log(facts) -> Listener:
        heard.append(facts)
        return lambda step: None

    arms, groups = [bench.plain(), bench.arm("ngram")], [Group("a", ((5, 6, 7),))]
    first = measure_groups(kept, arms, groups, Asked(FIXED), key="context 3", workload="w", log=log)
    again = measure_groups(kept, arms, groups, Asked(FIXED), key="context 3", workload="w", log=log)
    assert first.units == again.units
    assert sorted((facts["workload"], facts["arm"]) for facts in heard) == [
        ("w, context 3", "ngram"),
        ("w, context 3", "plain"),
    ]


def test_a_temperature_sweep_keeps_the_texts_of_seeds_and_says_who_draws_for_itself(bench):
    drafters = ["ngram", "skip:layers=1,law=sampled"]
    asked = Asked({"max_tokens": 12}, seed=7)
    figures, samples = run_temperature(
        bench, Run("temperature", None, {}), (0.0, 1.0), 0.9, drafters, [WORK.take(3)], asked
    )
    assert figures["keeps_text"] == {"ngram": True, "skip:layers=1,law=sampled": False}
    points = figures["sets"]["mine"]["points"]
    for found in points:
        assert found["arms"]["ngram"]["same_text"] == found["arms"]["ngram"]["answers"] == 3
    assert points[0]["arms"][drafters[1]]["same_text"] == 3, "nothing is drawn at 0"
    digests = [{unit.samples["plain"].digest for unit in samples.units[i : i + 3]} for i in (0, 3)]
    assert digests[0] != digests[1]
    assert "left out" not in spoken(view(figures))
    assert "left out, too long for the context: mine/p9" in spoken(view({**figures, "left_out": ["mine/p9"]}))
    assert any("draws for itself" in note for note in figures["notes"])
    assert not any("changed" in note for note in figures["notes"])


def test_a_text_that_should_have_stayed_is_told_of():
    arm = {"same_text": 3, "answers": 4}
    sets = {"mine": {"points": [{"value": 0.7, "arms": {"a": arm, "b": arm}}]}}
    (said,) = (note for note in notes(sets, {"a": True, "b": False}) if "changed" in note)
    assert "temperature 0.7: a changed 1 of 4" in said


def test_nothing_is_drawn_at_temperature_0():
    assert drawn(FIXED, 0.0, 0.9, 3) == FIXED
    assert drawn(FIXED, 0.5, 0.9, 3) == {**FIXED, "temperature": 0.5, "top_p": 0.9, "seed": 3}
