"""Records of public sets, in the shape that each set has, as prompts."""

import pytest

from forerun.core.errors import LoadError
from forerun.workloads import schemas


def test_humaneval(records):
    prompt = schemas.humaneval(records["humaneval"], 0)
    assert prompt.id == "HumanEval/900"
    assert "```python\ndef twice(x: int) -> int:\n    '''Two times x.'''\n```" in prompt.text
    assert prompt.reference == ("    return 2 * x\n",)
    assert prompt.category == "code"


def test_gsm8k_has_no_ids_so_the_place_is_one(records):
    prompt = schemas.gsm8k(records["gsm8k"], 17)
    assert (prompt.id, prompt.turns) == ("gsm8k-17", ("Two and two?",))
    assert prompt.reference == (records["gsm8k"]["answer"],)


def test_mt_bench_in_both_forms(records):
    prompt = schemas.mt_bench(records["mt_bench"], 0)
    assert (prompt.id, prompt.turns, prompt.category, prompt.reference) == ("12345", ("one", "two"), "writing", ())
    other = schemas.mt_bench({"question_id": 81, "category": "math", "turns": ["x", "y"], "reference": ["r"]}, 0)
    assert (other.id, other.turns, other.category, other.reference) == ("81", ("x", "y"), "math", ("r",))


def test_sharegpt_keeps_what_people_say(records):
    prompt = schemas.sharegpt(records["sharegpt"], 3)
    assert (prompt.id, prompt.turns) == ("sharegpt-3", ("first", "second"))
    assert schemas.sharegpt({"id": "x", "conversations": []}, 4) is None
    assert schemas.sharegpt({"id": "x", "conversations": [{"from": "gpt", "value": "alone"}]}, 5) is None


def test_longbench_asks_behind_the_text(records):
    prompt = schemas.longbench(records["longbench"], 2)
    assert prompt.turns == ("A long text.\n\nWho wrote it?",)
    assert (prompt.id, prompt.category, prompt.reference) == ("qasper-2", "qasper", ("Ann", "Anne"))


@pytest.mark.parametrize(
    ("task", "said", "end"),
    [
        ("gov_report", "", "A long text.\n\nSummarise this report in one page."),
        ("gov_report_e", "", "A long text.\n\nSummarise this report in one page."),
        ("passage_retrieval_en", "An abstract.", "Reply with its name.\n\nAn abstract."),
    ],
)
def test_longbench_s_tasks_that_do_not_ask_themselves(records, task, said, end):
    prompt = schemas.longbench({**records["longbench"], "dataset": task, "input": said}, 0)
    assert prompt.text.endswith(end)
    assert prompt.category == task.removesuffix("_e")


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("humaneval", {"task_id": None}, "no field 'task_id' (it has: task_id, prompt, canonical_solution, "),
        ("gsm8k", {"question": 5}, "field 'question' must be text, got 5"),
        ("gsm8k", {"answer": None}, "no field 'answer'"),
        ("mt_bench", {"category": None}, "no field 'category'"),
        ("mt_bench", {"prompt": None}, "no prompt: one of the fields turns, "),
        ("sharegpt", {"conversations": None}, "no field 'conversations'"),
        ("sharegpt", {"conversations": [{"value": "x"}]}, "message 1 of field 'conversations': no field 'from'"),
        ("longbench", {"input": ""}, "field 'input' is empty, which no record of the task 'qasper' may have"),
        ("longbench", {"context": None}, "no field 'context'"),
    ],
)
def test_a_field_that_is_not_as_it_must_be_is_named(records, name, changed, message):
    with pytest.raises(LoadError) as caught:
        getattr(schemas, name)({**records[name], **changed}, 0)
    assert message in str(caught.value)
