"""The draft model in training: some of the target's layers under its own embedding and norm, and what it costs to err.

transformers' Llama carries the gradients. The vocabulary's end is the target's and stays as it is: it is most of the
model, and the layers have little time to learn. Its product with the hidden states is where the time goes, so loss and
gradient are taken together, some hundred rows at a time, without keeping logits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from forerun.weights.folder import Checkpoint

_ROWS = 256  # of logits at a time


def student_config(checkpoint: Checkpoint, layers: int, biased: bool) -> dict[str, Any]:
    """config.json of the target with so many layers, and biases in their MLPs where a bridge needs them."""
    kept = {key: value for key, value in checkpoint.config.items() if value is not None}
    return {
        **kept, "architectures": ["LlamaForCausalLM"], "num_hidden_layers": layers, "mlp_bias": biased,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    }  # fmt: skip


def cut(checkpoint: Checkpoint, layers: Sequence[int], biased: bool = False) -> LlamaForCausalLM:
    """The target with these of its layers alone, in float32; biases are 0, the embedding takes no gradients."""
    model = LlamaForCausalLM(LlamaConfig(**student_config(checkpoint, len(layers), biased)))
    load, state = checkpoint.tensors.load, {}
    for name in checkpoint.tensors.names():
        parts = name.split(".")
        if parts[1] != "layers":
            state[name] = load(name).float()
        elif int(parts[2]) in layers:
            place = layers.index(int(parts[2]))
            state[".".join([*parts[:2], str(place), *parts[3:]])] = load(name).float()
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    biases = {name: torch.zeros_like(value) for name, value in model.state_dict().items() if name.endswith(".bias")}
    model.load_state_dict(state | biases, strict=True)
    model.model.embed_tokens.weight.requires_grad_(False)
    return model


def tensors(model: LlamaForCausalLM) -> Mapping[str, Tensor]:
    """Its weights by their Hugging Face names, bfloat16, the tied head left out."""
    state = model.state_dict()
    return {name: value.bfloat16().contiguous() for name, value in state.items() if name != "lm_head.weight"}


def hidden(model: LlamaForCausalLM, tokens: Tensor) -> Tensor:
    """States [B, T, E] after the last norm; shorter rows are padded at their end, which no earlier token sees."""
    with torch.autocast("cpu", torch.bfloat16):
        states: Tensor = model.model(input_ids=tokens, use_cache=False).last_hidden_state
    return states


class SoftLabels(torch.autograd.Function):
    """Mean cross-entropy of rows against distributions over a few ids each.

    states [N, E] and head [V, E] are bfloat16; ids and chances are [N, K]. An id may come twice; each row of chances
    sums to 1.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, head: Tensor, ids: Tensor, chances: Tensor) -> Tensor:
        """The loss; the gradient of `states` is kept for later."""
        gradient, loss = torch.empty_like(states), 0.0
        for at in range(0, len(states), _ROWS):
            rows = slice(at, at + _ROWS)
            law = torch.softmax(states[rows] @ head.T, -1)
            logs = law.gather(1, ids[rows]).float().clamp_min(1e-9).log()
            loss -= float((chances[rows] * logs).sum())
            law.scatter_add_(1, ids[rows], -chances[rows].to(law.dtype))
            gradient[rows] = law @ head
        ctx.save_for_backward(gradient.div_(len(states)))
        return torch.tensor(loss / len(states))

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor, None, None, None]:
        """That of the states alone."""
        (gradient,) = ctx.saved_tensors
        return outer * gradient, None, None, None
