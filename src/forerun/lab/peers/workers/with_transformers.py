"""transformers' `generate`, on a folder or a GGUF file whose blocks are unpacked once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import torch
import transformers


# transformers' classes have no types for whoever checks ours.
class Stamps(transformers.StoppingCriteria):  # type: ignore[misc]
    """Notes wall and processor time at every token, and stops nothing."""

    def __init__(self) -> None:
        self.times: list[tuple[float, float]] = []

    def __call__(self, ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """After each token."""
        self.times.append((perf_counter(), process_time()))
        return torch.zeros(ids.shape[0], dtype=torch.bool)


def loaded(path: Path, dtype: torch.dtype) -> Any:
    """The model for reading and answering."""
    if path.is_dir():
        model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
    else:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            path.parent,
            gguf_file=path.name,
            dtype=dtype,
            quantization_config=transformers.GgufConfig(dequantize=True),  # else it unpacks blocks in every forward
        )
    return model.eval()


def opened(settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Versions, and the task."""
    torch.set_num_threads(settings["threads"])
    model = loaded(Path(settings["file"]), getattr(torch, settings["dtype"]))

    def answer(ids: Sequence[int], max_tokens: int, ends: Sequence[int]) -> dict[str, Any]:
        stamps, prompt = Stamps(), torch.tensor([list(ids)])
        begin = perf_counter()
        with torch.inference_mode():
            out = model.generate(
                prompt, attention_mask=torch.ones_like(prompt), do_sample=False, repetition_penalty=1.0,
                max_new_tokens=max_tokens, eos_token_id=list(ends) or None, pad_token_id=0, stopping_criteria=[stamps],
            )  # fmt: skip
        (first, cpu), (end, cpu_end) = stamps.times[0], stamps.times[-1]
        tokens = out[0, len(ids) :].tolist()
        return {"tokens": tokens, "first_s": first - begin, "decode_s": end - first, "cpu_s": cpu_end - cpu}

    return {"transformers": transformers.__version__, "torch": torch.__version__}, {"answer": answer}
