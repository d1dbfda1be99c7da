"""The decoder that is trained is the one that serves: its states against those that serving captured, family by family;
and a draft model's start, and the lessons of both."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tiny_corpus import ENDS, begun, fill, tiny_target

from forerun.models.config import ModelConfig
from forerun.models.heads.formats import own
from forerun.testing.heads import random_config, random_head
from forerun.testing.tiny import Tiny, write_folder
from forerun.train.batches import Batch
from forerun.train.decoder import Decoder, weights_of
from forerun.train.draft import Cut, kept_layers
from forerun.train.ends import Ends
from forerun.train.kinds import pupil
from forerun.train.recipe import Recipe
from forerun.weights.folder import open_checkpoint

WINDOW = {"sliding_window": 12}
BIASED = {"attention_bias": True, "mlp_bias": True}


def with_biases(path):
    """Give every matrix of the layers a bias."""
    held, draw = load_file(path), torch.Generator().manual_seed(3)
    for name in [name for name in held if name.endswith("_proj.weight")]:
        held[name.replace("weight", "bias")] = torch.randn(len(held[name]), generator=draw) * 0.3
    save_file(held, path)


@pytest.mark.parametrize(
    ("family", "extra"),
    [
        ("llama", {}),
        ("llama", BIASED),
        ("mistral", WINDOW),
        ("qwen2", {}),
        ("qwen3", {}),
        ("gemma3_text", {"sliding_window": 9, "query_pre_attn_scalar": 20}),
    ],
)
def test_states_are_those_of_serving(family, extra, tmp_path):
    """The corpus's last tap is the final norm's output of every token but the last."""
    sizes = {"hidden": 32, "layers": 2, "max_len": 512, "sharpness": 2.0}
    folder = write_folder(tmp_path / "target", Tiny(family, **sizes, tied=False, extra=ENDS | extra))
    if extra is BIASED:
        with_biases(folder / "model.safetensors")
    base = tiny_target(folder)
    corpus = fill(begun(tmp_path / "corpus", base), base, 150)
    source = open_checkpoint(folder)
    config = ModelConfig.from_hf(source.config)
    decoder, w = Decoder(config), weights_of(source.tensors, {0: 0, 1: 1})
    for place in list(corpus)[:6]:
        sample = corpus.load(place)
        embedded = F.embedding(sample.tokens.long(), source.tensors.load("model.embed_tokens.weight").float())
        got = decoder.states(w, embedded[None])[0, :-1]
        torch.testing.assert_close(got, sample.states[:, -config.hidden_size :].float(), rtol=0.02, atol=0.03)


def test_padding_changes_nothing_before_it(tiny_folder):
    source = open_checkpoint(tiny_folder)
    decoder, w = Decoder(ModelConfig.from_hf(source.config)), weights_of(source.tensors, {0: 0, 1: 1})
    x = torch.randn(1, 9, 32, generator=torch.Generator().manual_seed(1))
    longer = torch.cat([x, torch.ones(1, 4, 32)], 1)
    torch.testing.assert_close(decoder.states(w, longer)[:, :9], decoder.states(w, x))


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deep")
    sizes = {"hidden": 32, "layers": 6, "inner": 80, "max_len": 512, "sharpness": 2.0}
    write_folder(folder / "target", Tiny("llama", **sizes, extra=ENDS))
    base = tiny_target(folder / "target")
    return open_checkpoint(folder / "target"), fill(begun(folder / "corpus", base, (0, 1, 6)), base, 900)


def test_a_bridge_gives_what_is_missing_as_far_as_lines_go(deep, monkeypatch):
    """What goes into the last layer, of texts that the bridge was not fitted on, nearer to the target's than bare."""
    source, corpus = deep
    whole = Decoder(ModelConfig.from_hf(source.config))
    cut = Cut(source, kept_layers(whole.config, 3))
    assert cut.layers == (0, 1, 5)
    bridged = cut.weights(corpus, Ends.of(source))
    monkeypatch.setattr("forerun.train.draft.bridge", lambda *args: None)
    bare, of_target = cut.weights(corpus, Ends.of(source)), weights_of(source.tensors, {n: n for n in range(6)})
    embedding, small = source.tensors.load("model.embed_tokens.weight").float(), Decoder(cut.config())
    errors = {"bridged": 0.0, "bare": 0.0}
    for place in [place for place in corpus if place.held_out][:4]:
        embedded = F.embedding(corpus.load(place).tokens.long(), embedding)[None]
        wanted = list(whole.streams(of_target, embedded))[5]
        for name, w in (("bridged", bridged), ("bare", bare)):
            gap = (small.around(w, embedded, 1)[1] - wanted)[0, 4:]
            errors[name] += float((gap.norm(dim=-1) / wanted[0, 4:].norm(dim=-1)).mean())
    assert errors["bridged"] < 0.9 * errors["bare"], errors


def test_a_draft_model_s_loss_is_that_of_its_rows(deep):
    """Against the slow way: whole distributions, row by row, over all words."""
    source, corpus = deep
    made = pupil(Recipe("draft", layers=3), corpus, Ends.of(source))
    samples = [corpus.load(place) for place in list(corpus)[:3]]
    decoder, end = made.lesson.decoder, source.tensors.load("model.embed_tokens.weight").float()
    wanted, rows = 0.0, 0
    for sample in samples:
        own = decoder.states(made.weights, F.embedding(sample.tokens.long(), end)[None])[0]
        for position in range(len(sample.tokens) - 1):
            if sample.answered[position + 1]:
                p = torch.softmax(sample.states[position, -32:].float() @ end.T, -1)
                q = torch.log_softmax(own[position] @ end.T, -1)
                wanted, rows = wanted + float((torch.special.xlogy(p, p) - p * q).sum()), rows + 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("forerun.train.unrolled.POSSIBLE", -1.0)
        patch.setattr("forerun.train.unrolled.TOLD_ROWS", 10_000)
        _, told = made.lesson(made.weights, Batch.of(samples))
    assert told.loss == pytest.approx(wanted / rows, rel=0.03)


def test_medusa_2_keeps_its_target_where_it_is_while_nothing_is_learnt(deep, monkeypatch):
    """Untrained, the target agrees with itself in every row, and its own loss is nothing."""
    source, corpus = deep
    made = pupil(Recipe("medusa2", draft_vocab=100, steps=2), corpus, Ends.of(source))
    assert set(made.gentle) == {name for name in made.weights if not name.startswith("heads.")}
    samples = [corpus.load(place) for place in list(corpus)[:3]]
    heads = pupil(Recipe("medusa", draft_vocab=100, steps=2), corpus, Ends.of(source))
    monkeypatch.setattr("forerun.train.unrolled.POSSIBLE", -1.0)
    _, both = made.lesson(made.weights, Batch.of(samples))
    _, alone = heads.lesson(heads.weights, Batch.of(samples))
    assert both.agreement[0] > 0.98
    assert both.loss == pytest.approx(0.2 * alone.loss, abs=0.05)


@pytest.mark.parametrize(
    ("family", "extra"),
    [
        ("mistral", {"sliding_window": None}),
        ("mistral", {"sliding_window": 12}),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2}),
        ("qwen3", {}),
        ("gemma3_text", {"sliding_window": 9}),
        ("llama", {}),
    ],
)
def test_a_cut_s_config_says_the_windows_that_it_was_taught_with(family, extra, tmp_path):
    """A null says that there is no window, where no word would mean 4096; layers have other numbers than they had."""
    folder = write_folder(tmp_path, Tiny(family, hidden=32, layers=5, inner=80, max_len=512, extra=extra))
    source = open_checkpoint(folder)
    for layers in ((0, 1, 4), (0, 1, 2, 3, 4)):
        cut = Cut(source, layers)
        assert ModelConfig.from_hf(cut.settings()).windows == cut.config().windows


def test_what_is_changed_in_training_is_not_changed_in_the_file(deep):
    """Float32 tensors of a file are views of it, which a bridge would write into."""
    source, _ = deep
    for value in weights_of(source.tensors, {0: 0}).values():
        value.zero_()
    assert all(bool(value.any()) for value in weights_of(source.tensors, {0: 0}).values())


@pytest.mark.parametrize("switch", ["norm_before_fc", "fc_norm"])
def test_a_head_with_norms_before_its_joining_is_taught_without_a_scale(switch, deep):
    """A norm and a scale by channels do not commute: the head would be taught as one function and serve as another."""
    source, corpus = deep
    sizes = {"intermediate_size": 80, "heads": 4, "kv_heads": 2, "head_dim": 8}
    begun = random_head(random_config("eagle3", 264, 32, 100, **sizes, taps=(0, 1, 2), **{switch: True}), 1)
    facts = replace(corpus.facts, taps=(0, 1, 2, 6))
    data = copy(corpus)
    data.facts = facts
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("forerun.train.kinds._scale", lambda *args: pytest.fail("no scale is wanted"))
        made = pupil(Recipe("eagle3", begun=begun), data, Ends.of(source))
    done, kept = made.finish(made.weights).head, own.compacted(begun)
    for name in kept.tensors:
        torch.testing.assert_close(done.floats(name), kept.floats(name), msg=name)
