"""Threads of torch beside those of the native runtime."""

from dataclasses import replace

import pytest
import torch

from forerun.assemble import Config, choice_for
from forerun.core.errors import SpecError
from forerun.targets.threads import torch_threads, use_threads


def test_torch_s_threads_are_lent_to_the_native_runtime_and_come_back():
    """Threads of torch that wait for work take the cores from our own; another runtime needs them again."""
    torchs = choice_for(Config("m", runtime="torch"))
    native = replace(torchs, runtime="native")
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        use_threads(None, native)
        use_threads(None, native)
        assert torch.get_num_threads() == 1
        with torch_threads(None):
            assert torch.get_num_threads() == 3
        assert torch.get_num_threads() == 1
        use_threads(None, torchs)
        assert torch.get_num_threads() == 3
        torch.set_num_threads(2)
        use_threads(None, torchs)
        assert torch.get_num_threads() == 2, "what its owner set stays"
        with pytest.raises(SpecError, match="threads must be"):
            use_threads(0, native)
    finally:
        torch.set_num_threads(before)
