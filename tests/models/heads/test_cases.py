"""Failures that people met with heads in other programs, each with its right value; numbers as in docs/failures.md."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from forerun.cache.pool import Table
from forerun.cache.view import Part
from forerun.core.draft import Tree
from forerun.core.errors import LoadError
from forerun.core.params import SamplingParams
from forerun.core.seq import Seq
from forerun.core.vocabulary import PLAIN
from forerun.core.work import Item
from forerun.drafters.word_rows import WordRows
from forerun.models.heads.formats import medusa, safeai, speculators
from forerun.models.heads.opening import Fit, open_head
from forerun.models.heads.packed import rows_of_end
from forerun.models.heads.plain import TorchRecurrent
from forerun.models.opening import pack_now
from forerun.native import ext
from forerun.testing.heads import random_config, random_head
from forerun.testing.tiny import Tiny, write_folder
from forerun.weights.folder import open_checkpoint

FIT = Fit("tiny", 12, 64, 6, "abc")
END = torch.randn(64, 12, generator=torch.Generator().manual_seed(9))


def rows(words):
    return END if words is None else END[words]


def written(tmp_path, change=None, draft_vocab=4, **changes):
    """An EAGLE-3 head on disk, its tensors changed."""
    head = random_head(random_config("eagle3", 64, 12, draft_vocab, taps=(2, 3), **changes), 1)
    safeai.write(head, tmp_path, 6, rows)
    held = load_file(tmp_path / "model.safetensors")
    if change:
        change(held)
        save_file(held, tmp_path / "model.safetensors")
    return head


def test_115_a_missing_end_is_the_target_s_or_an_error(tmp_path):
    written(tmp_path, lambda held: held.pop("lm_head.weight"), draft_vocab=64)
    head, notes = open_head(tmp_path, FIT)
    assert not head.own_end
    assert "the target's serves" in notes[0]
    written(tmp_path, lambda held: held.pop("lm_head.weight"))
    with pytest.raises(LoadError, match=r"lm_head\.weight"):
        open_head(tmp_path, FIT)
    written(tmp_path, lambda held: (held.pop("lm_head.weight"), held.pop("fc.weight")), draft_vocab=64)
    with pytest.raises(LoadError, match=r"fc\.weight"):
        open_head(tmp_path, FIT)
    written(tmp_path)
    for name in sorted(load_file(tmp_path / "model.safetensors").keys() - {"d2t", "t2d"}):
        written(tmp_path, lambda held, name=name: held.pop(name))
        with pytest.raises(LoadError, match=r"is missing|do not belong together"):
            open_head(tmp_path, FIT)


def test_116_a_reduced_vocabulary_goes_through_its_map(tmp_path):
    marks = torch.zeros(64, dtype=torch.bool)
    marks[[5, 9, 20, 31]] = True
    written(tmp_path, lambda held: held.update({"d2t": torch.tensor([5, 8, 18, 28]), "t2d": marks}))
    head, _ = open_head(tmp_path, FIT)
    assert head.words.tolist() == [5, 9, 20, 31]
    seq = Seq(0, [1, 2], SamplingParams(), 64)
    item = Item(seq, 1, 1, Tree((2,), (-1,)))
    for word, token in enumerate((5, 9, 20, 31)):
        logits = torch.zeros(1, 4)
        logits[0, word] = 3.0
        assert WordRows([item], logits, head.words, 64, None, PLAIN).argmax(0, 0) == token
    written(tmp_path, lambda held: (held.pop("d2t"), held.pop("t2d")))
    with pytest.raises(LoadError, match="d2t is missing"):
        open_head(tmp_path, FIT)


def test_119_head_dim_is_the_config_s(tmp_path):
    head = written(tmp_path, heads=4, kv_heads=2, head_dim=8)
    assert open_head(tmp_path, FIT)[0].config.head_dim == 8
    said = json.loads((tmp_path / "config.json").read_text())
    del said["head_dim"]
    (tmp_path / "config.json").write_text(json.dumps(said))
    with pytest.raises(LoadError, match=r"q_proj.*\[32, 24\].*\[12, 24\]"):
        open_head(tmp_path, FIT)
    assert head.config.hidden_size == 12


def test_120_a_whole_model_is_no_head(tmp_path):
    write_folder(tmp_path, Tiny(hidden=12, heads=2, kv_heads=1, head_dim=6))
    with pytest.raises(LoadError, match=r"whole model.*-d model:path="):
        open_head(tmp_path, FIT)


def test_121_medusa_files_with_and_without_ends(tmp_path):
    head = random_head(random_config("medusa", 64, 12), 2)
    for folder, own_end in (("own", True), ("shared", False)):
        medusa.write(head, tmp_path / folder, rows, "tiny")
        file = tmp_path / folder / "medusa_lm_head.safetensors"
        held = load_file(file)
        save_file({name: value for name, value in held.items() if own_end or "linear" in name}, file)
        (tmp_path / folder / "config.json").write_text("{}")
        found, _ = open_head(tmp_path / folder, FIT)
        assert (found.config.count, found.config.blocks, found.own_end) == (3, 1, own_end)
    save_file({name: value for name, value in held.items() if not name.startswith("1.")}, file)
    with pytest.raises(LoadError, match=r"heads\.1\.blocks\.0\.weight' is missing"):
        open_head(tmp_path / "shared", FIT)


def test_123_a_head_of_another_target_is_refused_or_named(tmp_path):
    written(tmp_path)
    with pytest.raises(LoadError, match="expects hidden size 12, big has 32"):
        open_head(tmp_path, Fit("big", 32, 64, 6, ""))
    head = random_head(random_config("eagle3", 64, 12, 4, taps=(2, 3)), 1)
    speculators.write(head, tmp_path, rows, END, "someone/Other-12")
    _, notes = open_head(tmp_path, FIT)
    assert "someone/Other-12" in notes[0]
    assert "tiny" in notes[0]


@pytest.mark.skipif(ext.extension() is None, reason="the native extension was not built")
@pytest.mark.parametrize("weights", ["int8", "q4", "bf16"])
def test_125_a_packed_end_is_multiplied_as_what_it_stands_for(tmp_path, weights):
    from forerun.models.heads.native import NativeRecurrent

    folder = write_folder(tmp_path, Tiny(hidden=32, tied=True))
    packed = pack_now(open_checkpoint(folder), weights)
    end = rows_of_end(packed, None)
    config = random_config("mtp", 264, 32, 264, intermediate_size=48, heads=4, kv_heads=2, head_dim=8)
    head = random_head(config, 4, own_end=False)
    tokens, features = [5, 9, 20], torch.randn(3, 32, generator=torch.Generator().manual_seed(0))
    logits = []
    for runner in (NativeRecurrent(head, packed, "f32"), TorchRecurrent(head, end, end)):
        runner.open(2, 16)
        logits.append(runner.forward([Part(Table([1]), 0, 2, Tree((20,), (-1,)))], tokens, features, own=False).logits)
    assert float((logits[0] - logits[1]).norm() / logits[1].norm()) < 1e-2
