"""transformers `generate`, bf16, from the same file.

Arguments: GGUF file, threads, prompt as JSON ids.
"""

import json
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from turn import CONTEXT, TOKENS, serve, speak

say = speak()

import torch  # noqa: E402
import transformers  # noqa: E402


class Stamps(transformers.StoppingCriteria):
    """Notes the time of every token."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        self.times.append(perf_counter())
        return torch.zeros(ids.shape[0], dtype=torch.bool)


def main() -> None:
    path, threads, prompt = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    torch.set_num_threads(threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent,
        gguf_file=path.name,
        dtype=torch.bfloat16,
        quantization_config=transformers.GgufConfig(dequantize=True),  # else it unpacks blocks in every forward
    )
    model.eval()
    ids = torch.tensor([prompt[:CONTEXT]])

    def decode() -> dict[str, Any]:
        stamps = Stamps()
        with torch.inference_mode():
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, min_new_tokens=TOKENS, max_new_tokens=TOKENS,
                stopping_criteria=[stamps], pad_token_id=0,
            )  # fmt: skip
        ms = 1e3 * (stamps.times[-1] - stamps.times[0]) / (len(stamps.times) - 1)
        return {"ms": ms, "tokens": out[0, CONTEXT:].tolist()}

    serve(say, {"decode": decode}, {"transformers": transformers.__version__, "torch": torch.__version__})


if __name__ == "__main__":
    main()
