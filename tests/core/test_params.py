import numpy as np
import pytest
import torch

from forerun.core.errors import SpecError
from forerun.core.params import SamplingParams, legal, permits


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
        "stop_token_ids": [[-1], [True], ["a"], 5, "ab", [[1]], 1.5],
        "prediction": [[-1], [1.5], 5, [[1]], ["a"]],
        "logit_bias": [{-1: 1}, {"x": 1}, {"5.0": 1}, {5: 101}, {5: "a"}, {5: None}, {True: 1}, [5], 5],
        "ignore_eos": ["false", 1, None],
        "allowed": [5, [1, 2], "json"],
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


@pytest.mark.parametrize("field", ["stop", "stop_token_ids", "logit_bias", "prediction", "allowed", "seed",
                                   "max_tokens", "logprobs"])  # fmt: skip
def test_none_is_the_default_of_what_may_be_left_out(field):
    """Failure cases 134, 137."""
    assert SamplingParams(**{field: None}) == SamplingParams()


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


@pytest.mark.parametrize(
    "mask", [[False, True, True], np.array([False, True, True]), torch.tensor([False, True, True])]
)
def test_a_mask_is_a_mask_whoever_made_it(mask):
    """As ids, truth values would allow tokens 0 and 1."""
    assert legal(mask).tolist() == [False, True, True]


@pytest.mark.parametrize("ids", [[4, 5], (4, 5), range(4, 6), np.array([4, 5]), torch.tensor([4, 5]), iter([4, 5])])
def test_ids_are_ids_whoever_made_them(ids):
    assert legal(ids) == [4, 5]
