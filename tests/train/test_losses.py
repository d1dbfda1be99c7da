"""Losses over rows of words, against torch's own derivatives of the plain formulas."""

from __future__ import annotations

import pytest
import torch

from forerun.core.errors import SpecError
from forerun.train.losses import LOSSES, check_loss, row_loss


def plainly(loss, q, p):
    overlap = torch.minimum(p, q).sum(-1)
    kl = (torch.special.xlogy(p, p) - p * q.log()).sum(-1)
    if loss == "kl":
        return kl
    if loss == "tv":
        return 1 - overlap
    if loss == "nla":
        return -overlap.log()
    share = torch.exp(-3 * overlap).detach()
    return share * kl + (1 - share) * (1 - overlap)


@pytest.mark.parametrize("rows", [1, 7, 300])
@pytest.mark.parametrize("loss", LOSSES)
def test_value_and_gradients(loss, rows):
    draw = torch.Generator().manual_seed(1)
    states = torch.randn(rows, 6, generator=draw, requires_grad=True)
    end = torch.randn(11, 6, generator=draw, requires_grad=True)
    target = torch.softmax(torch.randn(9, 11, generator=draw) * 2, -1)
    which = torch.randint(9, (rows,), generator=draw)
    bias = torch.randn(11, generator=draw)
    total, same = row_loss(states, end, bias, target, which, loss, rows)
    total.backward()
    mine = states.grad.clone(), end.grad.clone()
    states.grad = end.grad = None
    q = torch.softmax(states @ end.T + bias, -1)
    want = plainly(loss, q, target[which]).mean()
    want.backward()
    assert float(total.detach()) == pytest.approx(float(want.detach()), rel=1e-4)
    torch.testing.assert_close(mine[0], states.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(mine[1], end.grad, rtol=1e-4, atol=1e-5)
    assert float(same) == pytest.approx(float((q.argmax(-1) == target[which].argmax(-1)).float().mean()))


def test_what_is_told_is_of_some_rows_and_gradients_are_of_all():
    states = torch.randn(9, 4, requires_grad=True)
    end, target = torch.randn(5, 4), torch.full((1, 5), 0.2)
    first = torch.zeros(9, dtype=torch.long)
    whole, _ = row_loss(states, end, torch.zeros(5), target, first, "kl", 9)
    whole.backward()
    gradient, states.grad = states.grad, None
    part, _ = row_loss(states, end, torch.zeros(5), target, first, "kl", 3)
    part.backward()
    torch.testing.assert_close(states.grad, gradient)
    logq = torch.log_softmax(states.detach()[:3] @ end.T, -1)
    assert float(part.detach()) == pytest.approx(
        float((0.2 * (torch.tensor(0.2).log() - logq)).sum(-1).mean()), rel=1e-4
    )


def test_a_frozen_end_takes_no_gradient():
    states = torch.randn(3, 4, requires_grad=True)
    end = torch.randn(5, 4)
    rows = torch.zeros(3, dtype=torch.long)
    total, _ = row_loss(states, end, torch.zeros(5), torch.full((1, 5), 0.2), rows, "kl", 3)
    total.backward()
    assert states.grad is not None
    assert end.grad is None


def test_no_rows_are_no_loss():
    states = torch.randn(0, 4, requires_grad=True)
    empty = torch.zeros(0, dtype=torch.long)
    total, same = row_loss(states, torch.randn(5, 4), torch.zeros(5), torch.zeros(0, 5), empty, "kl", 8)
    assert float(total.detach()) == 0.0
    assert float(same) == 0.0


def test_an_unknown_loss():
    with pytest.raises(SpecError, match="kl"):
        check_loss("kll")
