"""What the folder's README says: the recipe, and the figures of this run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def readme(report: Mapping[str, Any]) -> str:
    """Markdown; every number in it is out of `report`."""
    stages, tau = [report[stage] for stage in ("cut", "bridged", "after")], report["tau"]
    return f"""# A draft model for {report["model"]}

Made by `scripts/make_draft`. Layers {report["layers"]} of the target under its own embedding and final norm, trained to
guess what the target would say: {report["parameters"] / 1e6:.1f}M parameters, {report["megabytes"]} MB in bfloat16.
Without an explicit format of weights it runs in bfloat16; `--weights q4` gives it four bits and an int8 vocabulary.

1. **Prompts** ({report["prompts"]}) were written by the target: its chat template up to the user's turn, half of the
   time with the first words of a question, at temperature 1. No data set, no benchmark.
2. **Answers** by the target, greedy and at temperature 0.7, at most 160 tokens: {report["answered_tokens"]} tokens.
   At each token its 64 likeliest ids and their chances were kept.
3. **Bridges**: where layers are left out, a linear map fitted to the target's states, as linear neurons of an MLP.
4. **Training**: cross-entropy against those chances (nine tenths) and the token that was drawn (one tenth), AdamW with
   a highest rate of {report["rate"]}, cosine, {report["steps"]} steps; the embedding stays the target's.
   The last 50 steps' mean loss is {report["loss"]}.

| on {report["held_out"]} held-out answers | cut | bridged | trained |
|---|---|---|---|
| same first choice | {_row(stages, "first")} |
| the same, greedy answers alone | {_row(stages, "greedy")} |
| sum of min(p, q) over the 64 | {_row(stages, "overlap")} |

On {tau["prompts"]} held-out prompts, greedy, depth {tau["depth"]}, tau was {tau["tau"]} over {tau["emitted"]} tokens.

```json
{json.dumps(report)}
```
"""


def _row(stages: Sequence[Mapping[str, float]], name: str) -> str:
    return " | ".join(f"{stage[name]:.3f}" for stage in stages)
