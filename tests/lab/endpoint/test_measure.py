"""Whole runs against a small server."""

import asyncio
import json
import os
import signal

import pytest

from forerun.core.errors import LoadError, SpecError
from forerun.lab.endpoint.client import Address
from forerun.lab.endpoint.figures import figures
from forerun.lab.endpoint.load import Patience
from forerun.lab.endpoint.measure import measure
from forerun.lab.endpoint.part import Part
from forerun.lab.endpoint.plan import Arm, Talk, blocks, order, talks
from forerun.lab.endpoint.request import Ask, Form
from forerun.lab.endpoint.setup import Setup
from forerun.lab.endpoint.show import notes, view
from forerun.lab.restored import restored
from forerun.lab.run import Run
from forerun.workloads.workload import Prompt, Workload

from .server import LabServer, Script, page

TALKS = [Talk(f"t/{i}", (f"question {i}",), (None,)) for i in range(4)]
QUICK, SLOW = Script(tokens=8, gap_s=0.004), Script(tokens=8, gap_s=0.03)


def setup(lab, models=("A",), levels=(1,), **more):
    values = {"ask": Ask(tokens=8), "patience": Patience(1, 0.01), "timeout_s": 5.0, "idle_s": 0.0, **more}
    return Setup(Address.parse(lab.url), models, levels, **values)


def measured(lab, talked=TALKS, run=None, recount=None, **more):
    told, records = measure(run or Run("endpoint", None, {}), setup(lab, **more), talked, recount)
    return told, figures([restored(Part, json.loads(json.dumps(record))) for record in records], {})


def by_model(**scripts):
    return lambda asked: scripts[asked.body["model"]].answer()


def test_models_take_turns_prompt_by_prompt_and_the_first_is_asked_twice():
    six = [Talk(f"t/{i}", (f"question {i}",), (None,)) for i in range(6)]
    with LabServer(by_model(A=SLOW, B=QUICK)) as lab:
        told, found = measured(lab, six, models=("A", "B"))
        asked = [(a.body["model"], a.prompt.split("\n")) for a in lab.counted]
    units = [asked[i : i + 3] for i in range(0, 18, 3)]
    for i, unit in enumerate(units):
        assert sorted(model for model, _ in unit) == ["A", "A", "B"]
        assert {text for _, (_, text) in unit} == {f"question {i}"}
        marks = [mark for model, (mark, _) in unit if model == "A"]
        assert len(set(marks)) == 2  # no request finds another's prompt in the cache
        assert {mark for model, (mark, _) in unit if model == "B"} < set(marks)  # models read the same
    assert len({tuple(model for model, _ in unit) for unit in units}) > 1  # in changing order
    assert told.software == "lab-server/1, tests"
    speed = found["compared"]["B"]["1"]["ms_per_token"]
    assert (speed["verdict"], speed["of"]) == ("faster", 6)
    assert speed["value"] > 1
    assert found["compared"]["B"]["1"]["same_text"] == 6
    assert found["noise"]["1"]["ms_per_token"]["value"] > 0


def test_at_equal_concurrency():
    with LabServer(by_model(A=SLOW, B=SLOW)) as lab:
        _, found = measured(lab, models=("A", "B"), levels=(1, 3))
        assert lab.most == 3
    assert list(found["cells"]["B"]) == ["1", "3"]
    assert found["cells"]["A"]["3"]["in_flight"] > found["cells"]["A"]["1"]["in_flight"]
    assert all(cell["requests"] == 4 for by_level in found["cells"].values() for cell in by_level.values())


def test_blocks_keep_so_many_running():
    assert [len(part) for part in blocks(range(7), 1)] == [1] * 7
    assert [len(part) for part in blocks(range(30), 4)] == [10, 10, 10]
    assert [len(part) for part in blocks(range(5), 4)] == [5]
    with pytest.raises(SpecError, match="16 requests at once need as many prompts, there are 12"):
        blocks(range(12), 16)
    arms = [Arm("A", Form()), Arm("A", Form(), again=True), Arm("B", Form())]
    assert {tuple(arm.name for arm in order(arms, f"{i}", 0)) for i in range(60)} >= {("A", "A again", "B")}
    assert order(arms, "1/0/0", 3) == order(arms, "1/0/0", 3)


def test_later_turns_are_asked_with_the_first_models_answers():
    talked = [Talk("t/1", ("one", "two"), (None, None))]
    with LabServer(by_model(A=Script(tokens=2, text="a"), B=Script(tokens=2, text="b"))) as lab:
        _, found = measured(lab, talked, models=("A", "B"))
        late = [a.body["messages"] for a in lab.counted if a.prompt == "two"]
    assert len(late) == 3
    assert {messages[1]["content"] for messages in late} == {"aa"}
    assert [message["role"] for message in late[0]] == ["user", "assistant", "user"]
    assert found["cells"]["B"]["1"]["requests"] == 2


def test_a_turn_that_failed_ends_its_conversation():
    def say(asked):
        failing = asked.body["model"] == "A" and "two" in asked.prompt
        return page("no", 500) if failing else Script(tokens=2).answer()

    talked = [Talk("t/1", ("one", "two", "three"), (None,) * 3), Talk("t/2", ("x", "y", "z"), (None,) * 3)]
    with LabServer(say) as lab:
        _, found = measured(lab, talked, levels=(2,))
        prompts = [a.prompt for a in lab.counted]
    assert prompts.count("three") == 0
    assert prompts.count("z") == 2
    assert found["cells"]["A"]["2"]["failures"] == {"status 500": 1}


def test_warm_prompts_are_read_before_and_are_as_they_were_given():
    with LabServer(QUICK) as lab:
        measured(lab, TALKS[:1], prefix="warm")
        asked = [(a.body["max_tokens"], a.prompt) for a in lab.asked[1:]]
    assert asked == [(1, "question 0"), (8, "question 0")] * 2


def test_the_completions_api():
    with LabServer(Script(tokens=4, chat=False)) as lab:
        _, found = measured(lab, TALKS[:1], ask=Ask("completions", 4))
        last = lab.asked[-1]
    assert last.path == "/v1/completions"
    assert last.prompt.endswith("\nquestion 0")
    assert found["cells"]["A"]["1"]["tokens"] == 4


def page_of(server):
    """vLLM's counters: each request drafts 6 tokens in 2 rounds, 4 stand."""
    n = len(server.asked)
    return (
        f"vllm:spec_decode_num_drafts_total {2 * n}\nvllm:spec_decode_num_draft_tokens_total {6 * n}\n"
        f"vllm:spec_decode_num_accepted_tokens_total {4 * n}\nvllm:num_requests_running {server.running}\n"
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="0"}} {3 * n}\n'
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="1"}} {n}\n'
    )


def test_speculation_is_the_difference_of_counters_over_our_requests():
    with LabServer(QUICK, metrics=page_of) as lab:
        _, found = measured(lab, idle_s=2.0)
    told = found["cells"]["A"]["1"]["speculation"]
    assert (told["drafted"], told["accepted"], told["rounds"], told["accepted_at"]) == (24, 16, 8, [12, 4])
    assert (told["acceptance"], told["share_of_answers"]) == (0.6667, 0.5)
    assert found["cells"]["A"]["1"]["idle_by"] == ["metrics"]


PAGES = {
    "no page": (None, "the server has no metrics page"),
    "no series": ("# HELP vllm:x What\n# TYPE vllm:x counter\n", "holds no series"),
    "an empty page": ("", "holds no series"),
    "of a stranger": ("python_gc_objects_collected_total 7\n", "no server that is known here"),
    "without counters": ("vllm:num_requests_running 0\n", "of vllm has no counters of speculation"),
    "of other models": (
        'vllm:spec_decode_num_drafts_total{model_name="X"} 1\nvllm:spec_decode_num_drafts_total{model_name="Y"} 1\n',
        "counts other models than A",
    ),
    "that stand still": (
        "vllm:spec_decode_num_drafts_total 5\nvllm:spec_decode_num_draft_tokens_total 9\n"
        "vllm:spec_decode_num_accepted_tokens_total 3\n",
        "by vllm, counters nothing was drafted",
    ),
}


@pytest.mark.parametrize("name", PAGES)
def test_249_where_nothing_is_told_of_speculation_it_is_said_why(name):
    text, why = PAGES[name]
    with LabServer(Script(tokens=2), metrics=lambda server: text) as lab:
        _, found = measured(lab, TALKS[:1])
    (note,) = {text for text in notes(found) if text.startswith("nothing is told of speculation: ")}
    assert why in note
    assert not any(getattr(item, "title", "").startswith("Speculation") for item in view(found))


def test_work_of_others_makes_blocks_dirty_and_counters_doubtful():
    with LabServer(QUICK, metrics=lambda server: page_of(server) + "vllm:num_requests_waiting 1\n") as lab:
        _, found = measured(lab, TALKS[:1])
    cell = found["cells"]["A"]["1"]
    assert cell["dirty_blocks"] == cell["blocks"] == 1
    assert any("requests of others" in text for text in cell["speculation"]["warnings"])


def test_the_cross_check_counts_the_texts():
    with LabServer(Script(tokens=100, per_event=4, text=" ", usage="continuous")) as lab:
        _, found = measured(lab, TALKS[:1], recount=lambda text: -(-len(text) // 16))
    cell = found["cells"]["A"]["1"]
    assert (cell["tokens"], cell["events"], cell["retokenised"]) == (100, 25, 7)


def test_what_cannot_be_asked_is_one_line():
    def say(asked):
        return page('{"error": {"message": "model not found"}}', 404)

    with LabServer(say) as lab, pytest.raises(LoadError, match=r"'B'.*404.*not found.*\(the server lists: A\)"):
        measured(lab, models=("B",))
    with LabServer(lambda asked: page('{"id": 1}')) as lab, pytest.raises(LoadError, match="application/json where"):
        measured(lab)


def test_a_server_that_dies_leaves_what_was_measured_to_go_on_from(tmp_path):
    out = tmp_path / "run.json"

    def dying(asked):
        return page("gone", 503) if asked.number > 4 else QUICK.answer()

    run = Run("endpoint", out, {"x": 1})
    with LabServer(dying) as lab, pytest.raises(LoadError, match=r"A does not answer any more: .*503"):
        measured(lab, run=run)
    assert not out.exists()
    again = Run("endpoint", out, {"x": 1})
    assert again.resumed == 2
    with LabServer(QUICK) as lab:
        _, found = measured(lab, run=again)
        assert {a.prompt.split("\n")[1] for a in lab.counted} == {"question 2", "question 3"}
    assert found["cells"]["A"]["1"]["requests"] == 4


def test_a_prompt_that_nobody_answers_does_not_end_the_run():
    def say(asked):
        return page("too long", 400) if "question 2" in asked.prompt else QUICK.answer()

    with LabServer(say) as lab:
        _, found = measured(lab)
    assert found["cells"]["A"]["1"]["failures"] == {"status 400": 1}
    assert found["noise"]["1"]["ms_per_token"]["of"] == 3


def test_a_model_that_answers_nothing_but_short_questions_gives_no_figures():
    def say(asked):
        return page("too long", 400) if "question" in asked.prompt else QUICK.answer()

    with LabServer(say) as lab, pytest.raises(LoadError, match=r"A, 1 at once: none of 4 requests was.*400"):
        measured(lab)


def test_ctrl_c_closes_the_streams_and_keeps_the_units_that_are_done(tmp_path):
    def say(asked):
        if asked.number == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return (Script(tokens=400, gap_s=0.01) if asked.number >= 4 else QUICK).answer()

    run = Run("endpoint", tmp_path / "run.json", {})
    with LabServer(say) as lab:
        with pytest.raises(KeyboardInterrupt):
            measured(lab, run=run)
        for _ in range(100):
            if not lab.running:
                break
            asyncio.run(asyncio.sleep(0.02))
        assert (lab.running, lab.gone) == (0, 1)
    assert run.done == 1
    assert run.partial.exists()


def test_predictions_come_from_references_or_a_file(tmp_path):
    works = [Workload("w", (Prompt("a", ("edit this",), reference=("edited",)),), "tests")]
    assert talks(works, None, "reference") == [Talk("w/a", ("edit this",), ("edited",))]
    (tmp_path / "one.txt").write_text("same for all")
    assert talks(works, None, str(tmp_path / "one.txt"))[0].predictions == ("same for all",)
    (tmp_path / "by.jsonl").write_text('{"id": "a", "prediction": "mine"}\n')
    assert talks(works, None, str(tmp_path / "by.jsonl"))[0].predictions == ("mine",)
    with LabServer(QUICK) as lab:
        measured(lab, talks(works, None, "reference"))
        assert lab.asked[-1].body["prediction"] == {"type": "content", "content": "edited"}


def test_predictions_that_are_missing_or_odd_are_named(tmp_path):
    works = [Workload("w", (Prompt("a", ("one", "two"), reference=("x",)),), "tests")]
    with pytest.raises(SpecError, match="prompt 'a' of w has 2 turns and 1 known answers"):
        talks(works, None, "reference")
    assert talks(works, 1, "reference")[0].predictions == ("x",)
    with pytest.raises(LoadError, match="cannot be read"):
        talks(works, None, str(tmp_path / "none.txt"))
    (tmp_path / "odd.jsonl").write_text('{"id": "a"}\n')
    with pytest.raises(LoadError, match="line 1: expected"):
        talks(works, None, str(tmp_path / "odd.jsonl"))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"models": ("A", "A")}, "different names"),
        ({"levels": (2, 2)}, "different numbers"),
        ({"timeout_s": 0.0}, "--timeout is out of range"),
        ({"idle_s": float("nan")}, "--idle-wait is out of range"),
        ({"prefix": "hot"}, "unknown prefix"),
    ],
)
def test_odd_setups_are_refused(more, message):
    values = {"models": ("A",), "levels": (1,), **more}
    with pytest.raises(SpecError, match=message):
        Setup(Address.parse("http://h"), **values)
