"""From files to a network: tied heads and derived sizes, by the numbers of docs/failures.md."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from families import text

from forerun.arch import FAMILIES
from forerun.core.draft import Tree
from forerun.core.errors import CapacityError, LoadError
from forerun.core.params import SamplingParams
from forerun.core.seq import Seq
from forerun.core.work import Item
from forerun.targets.load import load
from forerun.testing.tiny import Tiny, write_folder, write_gguf
from forerun.weights.folder import open_checkpoint


def row(path) -> torch.Tensor:
    """The row after a few tokens."""
    target = load(open_checkpoint(path))
    seq = Seq(0, text(9), SamplingParams(), 64)
    target.begin(seq)
    return target.score([Item(seq, 0, 8, Tree.root(seq.last))]).raw(0, 0)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_and_a_gguf_file_are_the_same_network(family, tmp_path):
    """Of six layers, so that Gemma's fifth and sixth differ in window and rotation."""
    window = {} if family == "llama" else {"sliding_window": 5}
    if FAMILIES[family].windows == "switch":
        window |= {"use_sliding_window": True, "max_window_layers": 0}
    tiny = Tiny(family, layers=6, tied=False, extra=window)
    got = row(write_gguf(tmp_path / "tiny.gguf", tiny))
    torch.testing.assert_close(got, row(write_folder(tmp_path / "folder", tiny)), rtol=1e-4, atol=1e-4)


def test_a_softcap_is_refused_in_folders_and_in_gguf_files(tmp_path):
    capped = Tiny("gemma3_text", extra={"final_logit_softcapping": 30.0})
    with pytest.raises(LoadError, match=r"final_logit_softcapping is 30\.0"):
        row(write_folder(tmp_path / "folder", capped))
    with pytest.raises(LoadError, match=r"final_logit_softcapping is 30\.0"):
        row(write_gguf(tmp_path / "capped.gguf", capped))
    plain = Tiny("gemma3_text", extra={"final_logit_softcapping": None, "attn_logit_softcapping": 0.0})
    assert row(write_folder(tmp_path / "plain", plain)).isfinite().all()


class Headed(Tiny):
    """Has an output matrix in any case: its embedding, times a factor."""

    factor = 1.0

    def tensors(self) -> dict[str, torch.Tensor]:
        tensors = super().tensors()
        return {**tensors, "lm_head.weight": self.factor * tensors["model.embed_tokens.weight"]}


class Other(Headed):
    factor = 0.5


class Bare(Tiny):
    def tensors(self) -> dict[str, torch.Tensor]:
        return {name: tensor for name, tensor in super().tensors().items() if "embed" not in name}


def test_140_an_absent_output_matrix_is_the_embedding(tmp_path):
    tied, equal, other = (
        row(write_gguf(tmp_path / f"{i}.gguf", kind())) for i, kind in enumerate((Tiny, Headed, Other))
    )
    torch.testing.assert_close(equal, tied, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(other, tied / 2, rtol=1e-5, atol=1e-5)
    with pytest.raises(LoadError, match=r"token_embd\.weight"):
        open_checkpoint(write_gguf(tmp_path / "bare.gguf", Bare()))


def test_119_a_head_is_as_wide_as_the_config_says(tmp_path):
    tiny = Tiny(hidden=16, heads=4, kv_heads=2, head_dim=8)
    checkpoint = open_checkpoint(write_folder(tmp_path / "m", tiny))
    target = load(checkpoint)
    assert (target.runner.network.config.head_dim, target.spec.hidden_size) == (8, 16)
    assert bool(torch.isfinite(row(tmp_path / "m")).all())
    config = {key: value for key, value in checkpoint.config.items() if key != "head_dim"}
    with pytest.raises(LoadError, match=r"q_proj.*32.*16|q_proj.*16.*32"):  # derived: 16 / 4
        load(replace(checkpoint, config=config))


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_weights_that_do_not_fit_are_one_clear_line(tmp_path, monkeypatch, error):
    def full(*args, **kwargs):
        raise error

    monkeypatch.setattr("forerun.models.load.laid_out", full)
    with pytest.raises(CapacityError, match="do not fit the memory of cpu as float32"):
        load(open_checkpoint(write_folder(tmp_path / "m")))
