"""Muon held against torch's own, and its orthogonal matrices against what they are to be."""

from __future__ import annotations

import pytest
import torch

from forerun.train.ends import faster_dtype
from forerun.train.muon import Muon, orthogonal


def test_in_bfloat16_it_is_torch_s_own_bit_for_bit():
    torch.manual_seed(0)
    start = [torch.randn(24, 40), torch.randn(40, 24), torch.randn(16, 16)]
    grads = [[torch.randn_like(value) for value in start] for _ in range(3)]
    ends = []
    for cls in (Muon, torch.optim.Muon):
        values = [value.clone().requires_grad_() for value in start]
        optimiser = cls(values, lr=0.02, weight_decay=0.01)
        for step in grads:
            for value, grad in zip(values, step, strict=True):
                value.grad = grad.clone()
            optimiser.step()
        ends.append(values)
    for mine, theirs in zip(*ends, strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("shape", [(24, 40), (40, 24)])
def test_singular_values_come_near_one_and_vectors_stay(shape):
    torch.manual_seed(1)
    matrix = torch.randn(shape)
    matrix = torch.randn(shape)
    before = matrix.clone()
    found = orthogonal(matrix, torch.float32)
    assert matrix.equal(before)
    values = torch.linalg.svdvals(found)
    assert float(values.min()) > 0.5
    assert float(values.max()) < 1.5
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    turned = left.T @ found @ right.T
    assert float((turned - torch.diag(turned.diagonal())).abs().max()) < 1e-4


def test_the_dtype_of_lessons_is_one_of_two():
    assert faster_dtype(torch.device("cpu")) in (torch.float32, torch.bfloat16)
    assert faster_dtype(torch.device("meta")) is torch.bfloat16
