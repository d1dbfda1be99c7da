"""Small languages for exact tests: probabilities of the next token by all tokens so far."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from forerun.testing.exact import Table


def fixed_table(probs: Sequence[float]) -> Table:
    """The same probabilities [V] everywhere."""
    row = torch.tensor(probs, dtype=torch.float64)
    return lambda tokens: row


def script_table(script: Sequence[int], vocab_size: int, prompt_len: int = 1) -> Table:
    """Certain of `script` after the prompt; certain of the last id of the vocabulary off the script and past it."""

    def table(tokens: tuple[int, ...]) -> torch.Tensor:
        output = tokens[prompt_len:]
        on_script = len(output) < len(script) and output == tuple(script[: len(output)])
        row = torch.zeros(vocab_size, dtype=torch.float64)
        row[script[len(output)] if on_script else vocab_size - 1] = 1.0
        return row

    return table


def random_table(vocab_size: int, seed: int, support: Sequence[int] | None = None, zeros: float = 0.0) -> Table:
    """Other probabilities in every context, the same in every run; about a share `zeros` of `support` is impossible."""
    rows: dict[tuple[int, ...], torch.Tensor] = {}
    ids = range(vocab_size) if support is None else support

    def table(tokens: tuple[int, ...]) -> torch.Tensor:
        if tokens not in rows:
            rng = random.Random(f"{seed}:{tokens}")
            row = torch.zeros(vocab_size, dtype=torch.float64)
            for token in ids:
                row[token] = 0.0 if rng.random() < zeros else rng.randint(1, 9)
            if not row.any():
                row[rng.choice(ids)] = 1.0
            rows[tokens] = row / row.sum()
        return rows[tokens]

    return table
