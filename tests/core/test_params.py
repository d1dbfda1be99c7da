import pytest
import torch

from forerun.core.errors import SpecError
from forerun.core.params import SamplingParams, permits


@pytest.mark.parametrize(
    ("field", "values"),
    {
        "temperature": [-1, 101, "x", float("nan"), True, None],
        "top_p": [0, 1.1, -0.5, "1"],
        "min_p": [-0.1, 1.5],
        "top_k": [-1, 1.5, True],
        "repetition_penalty": [0, -1, float("inf")],
        "presence_penalty": [2.5, "a"],
        "frequency_penalty": [-2.5],
        "n": [0, -1, 1.0, 129],
        "max_tokens": [0, -1, 1.5, True],
        "min_tokens": [-1, 0.5],
        "seed": [1 << 64, 1.5, "7"],
        "logprobs": [-1, 21, True],
        "stop": ["", [""], ["a", ""], [1], 5, ["a"] * 17],
        "stop_token_ids": [[-1], [True], ["a"]],
        "prediction": [[-1], [1.5]],
        "logit_bias": [{-1: 1}, {"x": 1}, {5: 101}, {5: "a"}, {5: None}, {True: 1}, [5]],
    }.items(),
)
def test_a_value_that_cannot_be_meant_is_refused_by_name(field, values):
    """Failure cases 46c, 133, 134, 137."""
    for value in values:
        with pytest.raises(SpecError, match=field):
            SamplingParams(**{field: value})


def test_boundaries_are_fine():
    SamplingParams(temperature=2, top_p=1, seed=(1 << 64) - 1, stop="a", logprobs=20, top_k=0)
    SamplingParams(temperature=0.0, seed=-(1 << 63), stop=[], max_tokens=None)


def test_min_tokens_may_not_exceed_max_tokens():
    with pytest.raises(SpecError, match="min_tokens"):
        SamplingParams(min_tokens=5, max_tokens=4)


def test_one_stop_text_may_stand_alone():
    assert SamplingParams(stop="END").stop == ("END",)


@pytest.mark.parametrize(
    ("answer", "fine"),
    [
        (None, True),
        ([3, 5], True),
        ([4], False),
        (torch.tensor([False] * 5 + [True]), True),
        (torch.zeros(3).bool(), False),
    ],
)
def test_a_grammar_may_answer_in_three_forms(answer, fine):
    assert permits(answer, 5) is fine
