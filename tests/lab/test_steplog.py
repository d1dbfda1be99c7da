"""The step log: read back, it agrees with the engine's counts, and it has what the author of a controller needs."""

import os
from dataclasses import replace

import pytest

from forerun.core.draft import Draft, Signal, Tree, Verdict
from forerun.core.errors import SpecError
from forerun.core.plan import Plan
from forerun.core.protocols import StepTrace
from forerun.lab import steplog
from forerun.lab.steplog import COLUMNS, StepLog

parquet = pytest.importorskip("pyarrow.parquet")
PARAMS = {"max_tokens": 24, "ignore_eos": True}
FACTS = {"workload": "toys", "prompt": "p0", "turn": 0, "round": 1, "arm": "suffix"}
TREE = Tree((7, 1, 2, 3), (-1, 0, 1, 1), signals={1: Signal(0.9, 0.1), 2: Signal(0.5, 0.2), 3: Signal(0.25, 0.2)})
TIMES = {"draft": 0.5, "score": 1.0}
PLAN, DRAFT, VERDICT = Plan(3, 8, 2, 0.1), Draft((TREE,)), Verdict(((1, 3),), (9,))
STEP = StepTrace(PLAN, (4,), (2,), (2,), (3,), 5, TIMES, DRAFT, VERDICT, ((4, 0),), (11,))


def read(path):
    return parquet.read_table(path).to_pylist()


def logged(tmp_path, *steps, facts=FACTS):
    with StepLog(tmp_path / "s.parquet") as log:
        hear = log.listener(facts)
        for step in steps:
            hear(step)
    return read(tmp_path / "s.parquet")


@pytest.mark.parametrize("spec", ["suffix:width=3,nodes=8,factor=2", "skip:layers=1,depth=2", "none"])
def test_sums_are_the_engines(bench, tmp_path, spec):
    prompts = [bench.base.words.encode(text, bos=False) for text in ("one two one two one", "a b a b a")]
    path = tmp_path / "deep" / "steps.parquet"
    heard = []
    with StepLog(path) as log:
        hear = log.listener({**FACTS, "arm": spec})
        sample = bench.arm(spec).answer(prompts, PARAMS, lambda step: (heard.append(step), hear(step)))
    rows = read(path)
    assert list(rows[0]) == list(COLUMNS)
    assert sum(row["drafted"] for row in rows) == sample.drafted
    assert sum(row["accepted"] for row in rows) == sample.accepted
    assert sum(row["emitted"] for row in rows) == sample.emitted == 48
    assert len(rows) == sample.passes
    assert sum(row["draft_s"] for row in rows) == pytest.approx(sum(step.seconds["draft"] for step in heard))
    for b, prompt in enumerate(prompts):
        mine = [row for row in rows if row["request"] == rows[b]["request"]]
        places = [row["position"] for row in mine]
        assert places[0] == len(prompt)
        assert all(b - a == row["emitted"] for a, b, row in zip(places, places[1:], mine, strict=False))
    assert [row["step"] for row in rows if row["batch"] == 2][:4] == [0, 0, 1, 1]


def test_acceptance_by_confidence_can_be_computed(bench, tmp_path):
    prompt = bench.base.words.encode("the sea was the sea was the", bos=False)
    with StepLog(tmp_path / "s.parquet") as log:
        sample = bench.arm("skip:layers=1,depth=3").answer([prompt], PARAMS, log.listener(FACTS))
    table = parquet.read_table(tmp_path / "s.parquet", columns=["confidence", "judged", "stood"])
    guesses = [
        (confidence, stood)
        for row in table.to_pylist()
        for confidence, judged, stood in zip(*row.values(), strict=True)
        if judged
    ]
    assert all(0.0 <= confidence <= 1.0 for confidence, _ in guesses)
    assert sum(stood for _, stood in guesses) == sample.accepted
    assert len(guesses) == sum(sample.tried_at)


def test_a_node_has_an_entry_in_every_list(tmp_path):
    (row,) = logged(tmp_path, STEP)
    assert (row["tokens"], row["parents"], row["path"]) == ([7, 1, 2, 3], [-1, 0, 1, 1], [1, 3])
    assert row["stood"] == [None, True, False, True]
    assert row["judged"] == [None, True, True, True]
    assert row["confidence"][1:] == pytest.approx([0.9, 0.5, 0.25])
    assert row["confidence"][0] is None
    assert (row["draft_s"], row["score_s"], row["verify_s"]) == (0.5, 1.0, None)
    assert (row["plan_depth"], row["plan_nodes"], row["plan_width"], row["plan_confidence"]) == (3, 8, 2, 0.1)
    assert (row["arm"], row["round"], row["request"], row["position"], row["prefilled"]) == ("suffix", 1, 4, 11, 5)


def test_guesses_behind_the_end_stood_but_were_not_used(tmp_path):
    (row,) = logged(tmp_path, replace(STEP, emitted=(1,)))
    assert (row["accepted"], row["emitted"], row["stood"][3]) == (1, 1, True)


def test_facts_and_signals_that_are_not_known_are_null(tmp_path):
    bare = replace(STEP, draft=Draft((replace(TREE, signals={}),)))
    (row,) = logged(tmp_path, bare, facts={"arm": "x"})
    assert row["workload"] is None
    assert row["confidence"] == row["entropy"] == [None] * 4
    with pytest.raises(SpecError, match="did you mean 'workload'"):
        logged(tmp_path, facts={"workloads": "x"})


def test_many_steps_are_written_in_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(steplog, "ROWS", 10)
    rows = logged(tmp_path, *[STEP] * 25)
    assert [row["step"] for row in rows] == list(range(25))
    assert parquet.ParquetFile(tmp_path / "s.parquet").num_row_groups == 3


def test_columns_say_what_they_hold(tmp_path):
    logged(tmp_path)
    schema = parquet.read_schema(tmp_path / "s.parquet")
    assert {field.name: field.metadata[b"about"].decode() for field in schema} == {
        name: about for name, (_, about) in COLUMNS.items()
    }


@pytest.mark.parametrize("error", [KeyboardInterrupt, SpecError])
def test_a_log_that_is_broken_off_leaves_nothing(tmp_path, error):
    def broken_off():
        with StepLog(tmp_path / "s.parquet") as log:
            log.listener(FACTS)(STEP)
            raise error

    with pytest.raises(error):
        broken_off()
    assert list(tmp_path.iterdir()) == []


def test_bad_paths_are_refused_before_anything_is_measured(tmp_path):
    (tmp_path / "folder.parquet").mkdir()
    (tmp_path / "file").write_text("")
    for name, hint in (("s.csv", ".parquet"), ("folder.parquet", "folder"), ("file/s.parquet", "cannot be logged")):
        with pytest.raises(SpecError, match=hint):
            StepLog(tmp_path / name)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_disk_that_is_full_is_said_and_leaves_nothing(tmp_path):
    (tmp_path / "s.parquet.part").symlink_to("/dev/full")
    with pytest.raises(SpecError, match="No space left"):
        StepLog(tmp_path / "s.parquet")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_is_said_and_leaves_nothing(tmp_path, monkeypatch):
    def full(self, table):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parquet.ParquetWriter, "write_table", full)
    with pytest.raises(SpecError, match="No space left"):
        logged(tmp_path, STEP)
    assert list(tmp_path.iterdir()) == []


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(steplog, "import_module", missing)
    with pytest.raises(SpecError, match=r"forerun\[lab\]"):
        StepLog(tmp_path / "s.parquet")
