"""From a checkpoint to a torch target: dtype and device by name, checked before anything is read."""

from __future__ import annotations

import torch

from forerun.core.errors import SpecError, unknown
from forerun.models.config import ModelConfig
from forerun.models.load import load_network
from forerun.targets.paged import PagedTarget
from forerun.targets.torch_runner import TorchRunner
from forerun.weights.folder import Checkpoint

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load(
    checkpoint: Checkpoint,
    *,
    vocab_size: int | None = None,
    dtype: str = "float32",
    device: str = "cpu",
    kv_tokens: int | None = None,
    max_len: int | None = None,
    reuse: bool = True,
) -> PagedTarget:
    """Read the checkpoint's weights for torch, into a `PagedTarget`; see there for the sizes.

    Raises SpecError for a dtype, device, tap or max_len that cannot be, CapacityError for too little memory, LoadError
    for weights that do not fit the config.
    """
    if dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    longest = ModelConfig.from_hf(checkpoint.config).max_len
    if max_len is not None and not 1 <= max_len <= longest:
        raise SpecError(f"max_len is {max_len}, the model reaches {longest} tokens: allowed 1..{longest}")
    network = load_network(checkpoint, DTYPES[dtype], usable_device(device), max_len)
    return PagedTarget(
        TorchRunner(network),
        name=checkpoint.path.name,
        fingerprint=checkpoint.fingerprint,
        vocab_size=vocab_size,
        kv_tokens=kv_tokens,
        max_len=max_len,
        reuse=reuse,
    )


def usable_device(name: str) -> torch.device:
    """The device of that name; SpecError if torch does not know it or cannot reach it here."""
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:  # each is some backend's refusal
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SpecError(f"device {name!r} is not available here ({first[:100]}): use cpu, cuda or cuda:N") from error
    return device
