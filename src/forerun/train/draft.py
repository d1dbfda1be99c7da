"""A draft model: some of the target's own layers under its embedding and end, taught to say what the target says.

The first layers and the last are taken. Layers put together across a gap do not understand each other: untrained, such
a cut agrees with its target less often than chance words would. So the last layer before the gap is given a linear map
from what its MLP reads to what is missing after it, by ridge regression on the target's own states. A Llama layer can
hold one exactly: neurons whose gate is a constant bias are linear. The map takes as many neurons as the model is wide;
the layer keeps the rest of its own. Families whose MLPs have no biases in their files begin without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from forerun.core.errors import SpecError
from forerun.models.config import ModelConfig
from forerun.train.batches import Batch
from forerun.train.corpus import Corpus
from forerun.train.decoder import Decoder, filed, weights_of
from forerun.train.ends import Ends
from forerun.train.made import MadeModel
from forerun.train.unrolled import Labels, Steps, Told
from forerun.weights.folder import Checkpoint

_OPEN = 2.0  # bias of a linear neuron's gate: open, yet not so far that its own weights could learn nothing
_RIDGE = 1e-3  # of the mean square of what is read
_SKIPPED = 4  # first tokens, whose states are of another size than all others
_FITTED = 40  # texts that a bridge is fitted on


@dataclass(frozen=True)
class DraftLesson:
    """A row of every token against the target's distribution of the next."""

    decoder: Decoder
    ends: Ends
    loss: str = "kl"

    def __call__(self, w: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Told]:
        """The loss of a batch with its gradient to come, and what to tell of it."""
        first = max(0, batch.first_answered() - 2)
        labels = Labels.of(batch, first, 1, self.ends, None)
        learnt, which = labels.of_step(0, batch.states.shape[1] - first)
        with self.ends.computing():
            states = self.decoder.states(w, F.embedding(batch.tokens, self.ends.embedding).float())
            steps = Steps(1.0)
            steps.add(*labels.loss(states[:, first + 1 :][learnt], labels.end(None), which, self.loss))
        return steps.mean()


def kept_layers(config: ModelConfig, count: int) -> tuple[int, ...]:
    """Which of the target's layers a cut of `count` keeps: the first ones, and the last."""
    if not 2 <= count < config.layers:
        raise SpecError(f"a draft model has from 2 to {config.layers - 1} of the target's {config.layers} layers")
    return (*range(count - 1), config.layers - 1)


@dataclass(frozen=True)
class Cut:
    """Some layers of a checkpoint's model as a model of their own, `biased` in its MLPs where a bridge needs it."""

    checkpoint: Checkpoint
    layers: tuple[int, ...]

    @property
    def biased(self) -> bool:
        """Whether there is a gap, and the family's files can hold a bridge over it."""
        return self._gap and ModelConfig.from_hf(self.checkpoint.config).arch.mlp_bias

    @property
    def _gap(self) -> bool:
        return len(self.layers) > 1 and self.layers[-2] + 1 < self.layers[-1]

    def settings(self) -> dict[str, Any]:
        """Its config.json."""
        found = {**self.checkpoint.config, "num_hidden_layers": len(self.layers), "torch_dtype": "bfloat16"}
        windows = self.config().windows
        if (any(windows) and len(set(windows)) > 1) or found.get("layer_types") is not None:  # by number no more
            found["layer_types"] = ["sliding_attention" if window else "full_attention" for window in windows]
        return found | ({"mlp_bias": True} if self.biased else {})

    def config(self) -> ModelConfig:
        """Its sizes."""
        whole = ModelConfig.from_hf(self.checkpoint.config)
        windows = tuple(whole.windows[i] for i in self.layers)
        return replace(whole, layers=len(self.layers), windows=windows, mlp_bias=whole.mlp_bias or self.biased)

    def weights(self, corpus: Corpus, ends: Ends) -> dict[str, Tensor]:
        """Where it starts: float32 by name, bridged if the family allows it."""
        found = weights_of(self.checkpoint.tensors, {old: new for new, old in enumerate(self.layers)})
        if self.biased:
            c = self.config()
            for i in range(len(self.layers)):
                at = f"layers.{i}.mlp."
                for part, size in (("gate", c.intermediate_size), ("up", c.intermediate_size), ("down", c.hidden_size)):
                    found.setdefault(f"{at}{part}_proj.bias", torch.zeros(size))
            if c.intermediate_size > c.hidden_size:
                bridge(found, self, corpus, ends)
        return found

    def made(self, w: Mapping[str, Tensor]) -> MadeModel:
        """The model with these weights, and the target's embedding and end."""
        load = self.checkpoint.tensors.load
        ends = {"model.embed_tokens.weight": load("model.embed_tokens.weight")}
        if not ModelConfig.from_hf(self.checkpoint.config).tied:
            ends["lm_head.weight"] = load("lm_head.weight")
        held = {filed(name): value.detach().clone() for name, value in w.items()}
        return MadeModel(self.checkpoint, self.settings(), ends | held)


@torch.no_grad()
def bridge(w: dict[str, Tensor], cut: Cut, corpus: Corpus, ends: Ends) -> None:
    """Make the last layer before the cut's gap give what the target's last layer reads, as far as lines go."""
    c = cut.config()
    i, width = len(cut.layers) - 2, c.hidden_size
    at = f"layers.{i}.mlp."
    w[f"{at}gate_proj.weight"][:width] = 0
    w[f"{at}gate_proj.bias"][:width] = _OPEN
    w[f"{at}up_proj.bias"][:width] = 0
    w[f"{at}down_proj.weight"][:, :width] = 0
    left, sizes, right = torch.linalg.svd(_regression(w, cut, corpus, ends).T)
    w[f"{at}up_proj.weight"][:width] = sizes.sqrt()[:, None] * right
    w[f"{at}down_proj.weight"][:, :width] = left * sizes.sqrt() / F.silu(torch.tensor(_OPEN))


def _regression(w: Mapping[str, Tensor], cut: Cut, corpus: Corpus, ends: Ends) -> Tensor:
    """The matrix [E, E] that, read by rows, turns what the MLP before the gap reads into what is missing after it."""
    small, whole = Decoder(cut.config()), Decoder(ModelConfig.from_hf(cut.checkpoint.config))
    of_target = weights_of(cut.checkpoint.tensors, {n: n for n in range(whole.config.layers)})
    i, onto, width = len(cut.layers) - 2, cut.layers[-1], small.config.hidden_size
    square, both = torch.zeros(width, width), torch.zeros(width, width)
    for place in islice((place for place in corpus if not place.held_out), _FITTED):
        embedded = F.embedding(corpus.load(place).tokens.long(), ends.embedding).float()[None]
        with ends.computing():
            read, given = small.around(w, embedded, i)
            wanted = next(islice(whole.streams(of_target, embedded), onto, None))
        rows, missing = read[0, _SKIPPED:].float(), (wanted - given)[0, _SKIPPED:].float()
        weight = 1 / wanted[0, _SKIPPED:].float().norm(dim=-1, keepdim=True)  # of error as the next norm sees it
        square += (rows * weight).T @ (rows * weight)
        both += (rows * weight).T @ (missing * weight)
    ridge = _RIDGE * square.diagonal().mean() * torch.eye(width)
    solved: Tensor = torch.linalg.solve(square + ridge, both)
    return solved
