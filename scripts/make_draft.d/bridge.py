"""A linear bridge over the layers that a cut leaves out, fitted in closed form, so that training starts from sense.

Layers put together across a gap do not understand each other: untrained, such a cut agrees with its target less often
than chance words would. So the last layer before the gap is given a linear map from what its MLP reads to what is
missing after it, by ridge regression on the target's own states. A Llama layer can hold one exactly: neurons whose gate
is a constant bias are linear. The map takes as many neurons as the model is wide; the layer keeps the rest of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from synthesis import Answer
from torch import Tensor
from transformers import LlamaForCausalLM

_OPEN = 2.0  # bias of a linear neuron's gate: open, yet not so far that its own weights could learn nothing
_RIDGE = 1e-3  # of the mean square of what is read
_SKIPPED = 4  # first tokens, whose states are of another size than all others


@torch.no_grad()
def bridge(
    student: LlamaForCausalLM, target: LlamaForCausalLM, place: int, onto: int, answers: Sequence[Answer]
) -> None:
    """Make the output of layer `place` of the student that of layer `onto - 1` of the target, as far as lines go."""
    layer = student.model.layers[place]
    width = student.config.hidden_size
    layer.mlp.gate_proj.weight[:width] = 0
    layer.mlp.gate_proj.bias[:width] = _OPEN
    layer.mlp.down_proj.weight[:, :width] = 0
    matrix = _regression(student, target, place, onto, answers)
    left, sizes, right = torch.linalg.svd(matrix.T)
    layer.mlp.up_proj.weight[:width] = sizes.sqrt()[:, None] * right
    layer.mlp.down_proj.weight[:, :width] = left * sizes.sqrt() / F.silu(torch.tensor(_OPEN))


def _regression(
    student: LlamaForCausalLM, target: LlamaForCausalLM, place: int, onto: int, answers: Sequence[Answer]
) -> Tensor:
    """The matrix [E, E] that, read by rows, turns what the MLP of the layer reads into what is missing after it."""
    read: list[Tensor] = []
    hook = student.model.layers[place].mlp.register_forward_pre_hook(lambda module, given: read.append(given[0]))
    width = student.config.hidden_size
    square, both = torch.zeros(width, width), torch.zeros(width, width)
    for answer in answers:
        tokens = torch.cat((answer.prompt, answer.answer))[None]
        given = _states(student, tokens)[place + 1]
        wanted = _states(target, tokens)[onto]
        rows = read.pop()[0, _SKIPPED:].float()
        weight = 1 / wanted[0, _SKIPPED:].norm(dim=-1, keepdim=True)  # of error as the next norm sees it
        square += (rows * weight).T @ (rows * weight)
        both += (rows * weight).T @ ((wanted - given)[0, _SKIPPED:] * weight)
    hook.remove()
    matrix: Tensor = torch.linalg.solve(square + _RIDGE * square.diagonal().mean() * torch.eye(width), both)
    return matrix


def _states(model: LlamaForCausalLM, tokens: Tensor) -> list[Tensor]:
    """What goes into each layer, [1, T, E]."""
    with torch.autocast("cpu", torch.bfloat16):
        found = model.model(input_ids=tokens, use_cache=False, output_hidden_states=True).hidden_states
    return [state.float() for state in found]
