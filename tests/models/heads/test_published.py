"""Heads of every published form, from the folders that their programs write, draft the trees of their formulas."""

from __future__ import annotations

import json
from dataclasses import replace
from math import exp

import pytest
import torch
from published import LAYERS, MASK, SIZES, TINY_MARGIN, VOCAB, WIDTH, Case, Maker, Network, fixed, grown

from forerun import heads
from forerun.core.errors import LoadError
from forerun.core.noise import SeededNoise
from forerun.core.params import SamplingParams
from forerun.core.plan import Plan
from forerun.core.seq import Seq
from forerun.core.work import Item
from forerun.drafters.names import drafter_entry
from forerun.models.heads import formats
from forerun.models.heads.formats import own
from forerun.models.heads.formats.configs import taps_of
from forerun.models.heads.head import Head
from forerun.models.heads.opening import Fit, kind_at, open_head
from forerun.models.load import load_network
from forerun.models.opening import pack_now
from forerun.native import ext
from forerun.targets.native_runner import NativeRunner
from forerun.targets.paged import PagedTarget
from forerun.targets.torch_runner import TorchRunner
from forerun.testing.tiny import Tiny, write_folder
from forerun.trees.named import shape_of
from forerun.weights.folder import open_checkpoint

TAPS = (2, 3)  # the published default for six layers


def renamed(w, old, new):
    return {name.replace(old, new): value for name, value in w.items()}


def d2t(words):
    return torch.tensor(words) - torch.arange(len(words))


def t2d(words):
    marks = torch.zeros(VOCAB, dtype=torch.bool)
    marks[words] = True
    return marks


def eagle_1():
    make = Maker(1)
    w = {"fc.weight": make.matrix(WIDTH, 2 * WIDTH), "fc.bias": make.vector(WIDTH)}
    w |= make.layer("layers.0.", WIDTH, first_norm=False)
    return Case("eagle", {**SIZES, "bias": True}, {**w, "embed_tokens.weight": make.matrix(VOCAB, WIDTH)}, w)


def eagle_1_nested(token_map=False):
    """vLLM's: the layer's config in `model`, a copy of the target's end, and norms that it does not use."""
    make = Maker(2)
    w = {"fc.weight": make.matrix(WIDTH, 2 * WIDTH)} | make.layer("layers.0.", WIDTH, first_norm=False, bias="q")
    words = make.words(20) if token_map else None
    files = {"fc.weight": w["fc.weight"], **{f"model.{n}": v for n, v in w.items() if n != "fc.weight"}}
    files |= {"lm_head.weight": make.matrix(VOCAB, WIDTH), "model.embed_tokens.weight": make.matrix(VOCAB, WIDTH)}
    files |= {
        "model.norm.weight": make.vector(WIDTH, 1),
        "model.layers.0.input_layernorm.weight": make.vector(WIDTH, 1),
    }
    if words:
        files["token_map"] = torch.tensor(words)
    config = {"model_type": "eagle", "architectures": ["EAGLEModel"], "model": {**SIZES, "attention_bias": True}}
    config |= {"truncated_vocab_size": len(words) if words else VOCAB, "num_lookahead_tokens": 3, "rms_norm_eps": 1e-5}
    return Case("eagle", config, files, w, words=words)


def eagle_3_tensors(make, taps=3, width=WIDTH, words=20, **layer):
    w = {"fc.weight": make.matrix(width, taps * WIDTH), "norm.weight": make.vector(width, 1)}
    w |= make.layer("layers.0.", 2 * width, width, feature_norm=True, **layer)
    return w | {"lm_head.weight": make.matrix(words, width, 3.0)}


def eagle_3():
    """SafeAILab's: midlayer, words by id, taps as published."""
    make = Maker(3)
    words = sorted(make.words(20))
    w = eagle_3_tensors(make, len(TAPS))
    files = {**renamed(w, "layers.0.", "midlayer."), "d2t": d2t(words), "t2d": t2d(words)}
    config = {**SIZES, "draft_vocab_size": 20, "architectures": ["LlamaForCausalLMEagle3"]}
    return Case("eagle3", config, files, w, taps=TAPS, words=words, end="own")


def eagle_3_by_frequency():
    """ModelOpt's: words by frequency, three taps in eagle_config, numbered by layers' outputs."""
    make = Maker(4)
    words, w = make.words(20), eagle_3_tensors(make)
    inner = {
        "eagle_aux_hidden_state_layer_ids": [3, 0, 2], "use_aux_hidden_state": True, "use_last_layernorm": True,
        "use_input_layernorm_in_first_layer": True, "use_mtp_layernorm": False, "next_layer_regular": True,
        "parallel_draft_step": 1, "parallel_draft_heads_num_layers": None,
    }  # fmt: skip
    config = {**SIZES, "draft_vocab_size": 20, "eagle_config": inner}
    return Case("eagle3", config, {**w, "d2t": d2t(words).int()}, w, taps=(1, 3, 4), words=words, end="own")


def eagle_31(nested):
    make = Maker(5 + nested)
    w = eagle_3_tensors(make, len(TAPS), words=VOCAB)
    if nested:
        w["input_norm.weight"] = make.vector(len(TAPS) * WIDTH, 1)
        said = {"eagle_config": {"norm_before_fc": True, "norm_output": True, "norm_before_residual": True}}
    else:
        w |= {f"fc_norm.{i}.weight": make.vector(WIDTH, 1) for i in range(len(TAPS))}
        said = {"fc_norm": True, "norm_output": True, "num_aux_hidden_states": len(TAPS)}
    files = {f"model.{name}" if name != "lm_head.weight" else name: value for name, value in w.items()}
    return Case(
        "eagle3", {**SIZES, **said}, files, w, taps=TAPS, end="own", hands_on_normed=True, norm_before_residual=nested
    )


def narrow():
    """A head of another width: an embedding of its own, which the tie flag makes its end."""
    make, width = Maker(7), 12
    w = eagle_3_tensors(make, len(TAPS), width)
    del w["lm_head.weight"]
    w["embed_tokens.weight"] = make.matrix(VOCAB, width, 3.0)
    words = make.words(30)
    config = {**SIZES, "hidden_size": width, "target_hidden_size": WIDTH, "tie_word_embeddings": True}
    return Case(
        "eagle3", config, {**w, "d2t": d2t(words)}, w, taps=TAPS, words=words, embedding="own", end="tied"
    )  # fmt: skip


def speculators_config(kind, layer, **said):
    return {
        "architectures": ["Eagle3Speculator"], "speculators_model_type": kind, "speculators_version": "0.3.0",
        "transformer_layer_config": {**SIZES, **layer}, "draft_vocab_size": 20, "embed_requires_grad": False,
        "target_hidden_size": None, "has_no_defaults_at_init": False, "tie_word_embeddings": False,
        "speculators_config": {
            "algorithm": kind, "default_proposal_method": "greedy", "verifier": {"name_or_path": "tiny"},
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
        },
        **said,
    }  # fmt: skip


def speculators_eagle_3():
    """Two layers with every bias, head norms, and a window on the first; the residual's default of older files."""
    make = Maker(8)
    w = eagle_3_tensors(make, bias="qom", qk=True) | make.layer("layers.1.", WIDTH, bias="qom", qk=True)
    w["embed_tokens.weight"] = make.matrix(VOCAB, WIDTH)
    words = make.words(20)
    layer = {
        "model_type": "qwen3", "num_hidden_layers": 2, "attention_bias": True, "mlp_bias": True, "sliding_window": 5,
        "layer_types": ["sliding_attention", "full_attention"],
    }  # fmt: skip
    config = speculators_config("eagle3", layer, eagle_aux_hidden_state_layer_ids=[1, 3, 4])
    return Case(
        "eagle3", config, {**w, "d2t": d2t(words), "t2d": t2d(words)}, w, layers=2, taps=(1, 3, 4), words=words,
        embedding="own", end="own", norm_before_residual=True, windows=(5, None),
    )  # fmt: skip


def p_eagle(embedding):
    """With its embedding as speculators has it, without as SpecForge may."""
    make = Maker(10 + embedding)
    w = eagle_3_tensors(make, len(TAPS)) | make.layer("layers.1.", WIDTH)
    w["mask_hidden"] = make.matrix(1, len(TAPS) * WIDTH)[0]
    words = make.words(20)
    files = {**w, "mask_hidden": w["mask_hidden"].view(1, 1, -1), "d2t": d2t(words)}
    if embedding:
        w["embed_tokens.weight"] = files["embed_tokens.weight"] = make.matrix(VOCAB, WIDTH)
        said = {"mask_token_id": MASK, "norm_before_residual": False}
        config = speculators_config("peagle", {"num_hidden_layers": 2}, **said)
    else:
        config = {**SIZES, "num_hidden_layers": 2, "dflash_config": {"mask_token_id": MASK}, "draft_vocab_size": 20}
    return Case(
        "p-eagle", config, files, w, layers=2, taps=TAPS, words=words, embedding="own" if embedding else "target",
        end="own",
    )  # fmt: skip


def mtp(form):
    """Qwen3-Next's names, with norms by weight or by one more, and speculators' names."""
    make, one_more = Maker(20), form == "one more"
    around = 0.0 if one_more else 1.0
    w = {"fc.weight": make.matrix(WIDTH, 2 * WIDTH)}
    w |= {f"{name}.weight": make.vector(WIDTH, around) for name in ("enorm", "hnorm", "norm")}
    w |= make.layer("layers.0.", WIDTH, qk=True, norm=around)
    theirs = {"enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden"}
    if form == "speculators":
        theirs = {
            "enorm": "token_layernorm", "hnorm": "hidden_layernorm", "fc": "input_proj", "norm": "final_layernorm",
        }  # fmt: skip
        back = {f"{ours}.weight": f"{name}.weight" for ours, name in theirs.items()}
        files = {f"mtp_layers.0.{back.get(n, n.removeprefix('layers.0.'))}": v for n, v in w.items()}
        config = speculators_config("mtp", {"model_type": "qwen3", "num_hidden_layers": LAYERS})
        config |= {"num_nextn_predict_layers": 1, "draft_vocab_size": VOCAB}
    else:
        back = {f"{ours}.weight": f"{name}.weight" for ours, name in theirs.items()}
        files = {f"mtp.{back.get(name, name)}": value for name, value in w.items()}
        config = {**SIZES, "model_type": "qwen3_next" if one_more else "qwen3", "num_hidden_layers": LAYERS}
        config |= {"mtp_num_hidden_layers": 1, "layer_types": ["linear_attention"] * LAYERS, "num_experts": 8}
    return Case("mtp", config, files, w, hands_on_normed=True, one_more=one_more)


def medusa(of_vllm):
    make = Maker(30 + of_vllm)
    words = make.words(20) if of_vllm else None
    w, files = {}, {}
    for i in range(3):
        w |= {f"{i}.block.weight": make.matrix(WIDTH, WIDTH), f"{i}.block.bias": make.vector(WIDTH)}
        w[f"{i}.end.weight"] = make.matrix(20 if words else VOCAB, WIDTH, 3.0)
    block, end = ("blocks.{}.layers.0", "lm_heads.{}") if of_vllm else ("{}.0.linear", "{}.1")
    for i in range(3):
        files |= {f"{block.format(i)}.{part}": w[f"{i}.block.{part}"] for part in ("weight", "bias")}
        files[f"{end.format(i)}.weight"] = w[f"{i}.end.weight"]
    if not of_vllm:
        config = {"medusa_num_heads": 2, "medusa_num_layers": 1, "base_model_name_or_path": "tiny", "version": "2"}
        return Case("medusa", config, files, w, end="own", file="medusa_lm_head.safetensors")
    files["token_map"] = torch.tensor(words, dtype=torch.int32)
    config = {"model_type": "medusa", "hidden_size": WIDTH, "num_heads": 3, "num_hidden_layers": 1, "max_paths": 64}
    config |= {"vocab_size": VOCAB, "truncated_vocab_size": 20, "medusa_fc_bias": True, "original_lm_head": False}
    return Case("medusa", config, files, w, words=words, end="own")


CASES = {
    "EAGLE-1": eagle_1(), "EAGLE-1 of vLLM": eagle_1_nested(), "EAGLE-1 of vLLM, few words": eagle_1_nested(True),
    "EAGLE-3": eagle_3(), "EAGLE-3 of ModelOpt": eagle_3_by_frequency(), "EAGLE-3.1": eagle_31(False),
    "EAGLE-3.1 nested": eagle_31(True), "narrow and tied": narrow(), "EAGLE-3 of speculators": speculators_eagle_3(),
    "P-EAGLE": p_eagle(True), "P-EAGLE without embedding": p_eagle(False), "MTP": mtp("plain"),
    "MTP, one more": mtp("one more"), "MTP of speculators": mtp("speculators"), "Medusa": medusa(False),
    "Medusa of vLLM": medusa(True),
}  # fmt: skip
RUNTIMES = ["torch", pytest.param("native", marks=pytest.mark.skipif(ext.extension() is None, reason="not compiled"))]


class Beside:
    """A tiny target on one of the runtimes, its embedding and its end."""

    def __init__(self, runtime, folder, layers=LAYERS) -> None:
        tiny = Tiny(layers=layers, hidden=WIDTH, heads=2, kv_heads=2, inner=32, vocab=VOCAB, tied=False)
        checkpoint = open_checkpoint(write_folder(folder, tiny, tokenizer=False))
        if runtime == "torch":
            runner = TorchRunner(load_network(checkpoint, torch.float32, "cpu"))
        else:
            runner = NativeRunner(pack_now(checkpoint, "f32"))
        self.target = PagedTarget(runner, name="tiny", fingerprint="tiny", kv_tokens=1024, reuse=False)
        load = checkpoint.tensors.load
        self.ends = load("model.embed_tokens.weight").float(), load("lm_head.weight").float()

    def drafter(self, kind, folder, **options):
        cls = drafter_entry(kind).load()
        few = {} if kind in ("medusa", "p-eagle") else {"level_rows": 0.0}
        asked = cls.Options(path=str(folder), format="f32", law="chosen", min_prob=0.0, **few, **options)
        return heads.drafter(cls, kind, asked, self.target)

    def drafted(self, drafter, tokens, plan, **params):
        """The tree below the last of these tokens, as {path: log-probability}, and the slots that it was grown from."""
        seq = Seq(0, tokens, SamplingParams(**params), 1 << 12)
        self.target.begin(seq)
        drafter.begin(seq)
        assert self.target.reserve(seq, len(tokens))
        rows = self.target.score([Item(seq, 0, len(tokens) - 1)], taps=drafter.taps)
        drafter.read(rows)
        tree = drafter.draft([seq], plan, SeededNoise([0])).trees[0]
        drafter.end(seq)
        self.target.release(seq)
        return tree, rows.hidden.clone()


def paths_of(tree):
    """{path: score} by the drafter's own account of each guess."""
    found = {(): 1.0}
    below = {0: ()}
    for node in range(1, len(tree)):
        path = (*below[tree.parents[node]], tree.tokens[node])
        below[node] = path
        found[path] = found[path[:-1]] * tree.signals[node].confidence
    return {path: score for path, score in found.items() if path}


@pytest.fixture(scope="module", params=RUNTIMES)
def beside(request, tmp_path_factory):
    return Beside(request.param, tmp_path_factory.mktemp("target"))


def prompts(count, length=11):
    draw = torch.Generator().manual_seed(5)
    return [torch.randint(VOCAB, (length + i,), generator=draw).tolist() for i in range(count)]


def compare(beside, case, drafter, plan, tree_of, asked, **params):
    """Trees of `asked` prompts are those of the formulas; near-ties are left out, and must be few."""
    network, compared = Network(case, *beside.ends), 0
    for tokens in prompts(asked):
        tree, features = beside.drafted(drafter, tokens, plan, **params)
        want, margin = tree_of(network.law(tokens[1:], features))
        if margin < TINY_MARGIN:
            continue
        compared += 1
        found = paths_of(tree)
        assert set(found) == set(want), (tokens, margin)
        assert {path: exp(score) for path, score in want.items()} == pytest.approx(found, rel=2e-3, abs=1e-6)
    assert 2 * compared >= asked, f"{compared} of {asked} trees had no near-tie"


@pytest.mark.parametrize("name", CASES)
def test_trees_are_those_of_the_formulas(name, beside, tmp_path):
    """EAGLE-2's growing tree of 8 nodes, and a static one of 25 cut to 9: the same nodes, parents and scores."""
    case = CASES[name]
    folder = case.write(tmp_path)
    made = beside.drafter(case.kind, folder)
    assert case.kind in ("eagle", "mtp", "medusa") or made.taps == case.taps
    compare(beside, case, made, Plan(3, nodes=8, width=3, signals=True), lambda logp: grown(logp, 3, 3, 8), 5)
    made = beside.drafter(case.kind, folder, tree="eagle-25")
    ranks, depth = shape_of("eagle-25").paths, 3
    ranks = [path for path in ranks if len(path) <= depth]
    compare(beside, case, made, Plan(depth, nodes=9, width=4, signals=True), lambda logp: fixed(logp, ranks, 9), 4)


FIT = Fit("tiny", WIDTH, VOCAB, LAYERS, "tiny")


def changed(case, config=None, files=None, without=()):
    """The case with other options and tensors in its folder."""
    kept = {name: value for name, value in case.files.items() if name not in without}
    return replace(case, config={**case.config, **(config or {})}, files={**kept, **(files or {})})


def opened(case, folder, fit=FIT):
    return open_head(case.write(folder), fit)


def refused(case, folder, match, fit=FIT):
    with pytest.raises(LoadError, match=match):
        opened(case, folder, fit)


def test_213_tied_embeddings_are_the_end_of_a_head_that_has_none(tmp_path):
    make = Maker(40)
    table = make.matrix(VOCAB, WIDTH)
    for i, (case, tie) in enumerate(
        [
            (changed(eagle_3(), {"tie_word_embeddings": True}), True),
            (changed(eagle_3_by_frequency(), {"tie_word_embeddings": True}), True),
            (changed(speculators_eagle_3(), {"tie_word_embeddings": True}), True),
            (changed(p_eagle(True), {"tie_word_embeddings": True}), True),
            (changed(eagle_31(False), {"tie_word_embeddings": False}), False),
        ]
    ):
        embedding = {next((n for n in case.files if n.endswith("embed_tokens.weight")), "embed_tokens.weight"): table}
        case = changed(case, files=embedding, without=("lm_head.weight",))
        head, notes = opened(case, tmp_path / str(i))
        assert head.own_end == tie
        if tie:
            assert torch.equal(head.tensors["lm_head.weight"], table[case.words])
        else:
            assert "the target's serves" in notes[0]
    inner = {**speculators_eagle_3().config["transformer_layer_config"], "tie_word_embeddings": True}
    case = changed(speculators_eagle_3(), {"tie_word_embeddings": None, "transformer_layer_config": inner})
    assert opened(changed(case, without=("lm_head.weight",)), tmp_path / "inner")[0].tied


def test_213_where_a_flag_and_the_tensors_differ_the_tensors_count_and_a_note_says_so(tmp_path):
    norms = {f"fc_norm.{i}.weight": torch.ones(WIDTH) for i in range(len(TAPS))}
    for i, (case, attribute, value, key) in enumerate(
        [
            (changed(eagle_3(), {"tie_word_embeddings": True}), "reduced", True, "tie_word_embeddings"),
            (changed(eagle_3(), {"attention_bias": True}), "qkv_bias", False, "attention_bias"),
            (changed(eagle_3(), {"fc_norm": False}, norms), "fc_norm", True, "fc_norm"),
            (changed(eagle_3(), {"mlp_bias": True}), "mlp_bias", False, "mlp_bias"),
            (changed(eagle_3(), {"num_hidden_layers": 32}), "layers", 1, "num_hidden_layers"),
        ]
    ):
        head, notes = opened(case, tmp_path / str(i))
        assert getattr(head.config, attribute) == value
        assert len(notes) == 1
        assert f"{key} is" in notes[0]
    assert opened(changed(eagle_3(), files=norms), tmp_path / "norms")[0].config.fc_norm, "found without a flag"
    refused(changed(eagle_3(), {"norm_before_fc": True}), tmp_path / "none", r"input_norm\.weight' is missing")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda d: d.float(), "d2t is float32, whole numbers"),
        (lambda d: d.float() + 0.4, "d2t is float32"),
        (lambda d: d.bfloat16(), "d2t is bfloat16"),
        (lambda d: d > 3, "d2t is bool"),
        (lambda d: d.view(1, -1), r"d2t has shape \[1, 20\]"),
        (lambda d: d.index_fill(0, torch.tensor([4]), 44), r"d2t\[4\] is 44, which leads to the target's id 48"),
        (lambda d: d.index_fill(0, torch.tensor([2]), -9), r"d2t\[2\] is -9, which leads to the target's id -7"),
    ],
)
def test_214_a_map_of_another_type_or_out_of_range_is_named(change, match, tmp_path):
    case = eagle_3()
    refused(changed(case, files={"d2t": change(case.files["d2t"])}, without=("t2d",)), tmp_path, match)


def test_214_maps_of_every_whole_type_are_read(tmp_path):
    case = eagle_3()
    types = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64)
    for dtype in types:
        head, _ = opened(changed(case, files={"d2t": case.files["d2t"].to(dtype)}), tmp_path / str(dtype))
        assert head.words.tolist() == case.words
    for dtype in (torch.uint8, torch.int64):
        opened(changed(case, files={"t2d": case.files["t2d"].to(dtype)}), tmp_path / f"marks {dtype}")


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        ("t2d", torch.ones(VOCAB), "t2d is float32"),
        ("t2d", torch.full((VOCAB,), 2), r"t2d\[0\] is 2: a mark is 0 or 1"),
        ("t2d", torch.ones(VOCAB - 1, dtype=torch.bool), r"t2d has shape \[47\], the config asks for \[48\]"),
        ("token_map", torch.arange(20).float(), "token_map is float32"),
        ("token_map", torch.arange(20) * 3, r"token_map\[16\] is 48: allowed are ids from 0 to 47"),
        ("token_map", torch.arange(20) - 1, r"token_map\[0\] is -1"),
        ("token_map", torch.arange(20) // 2, r"token_map\[1\] is 0.*as token_map\[0\] does"),
    ],
)
def test_214_the_other_maps_too(key, value, match, tmp_path):
    for case in (eagle_3(),) if key == "t2d" else (medusa(True), eagle_1_nested(True)):
        refused(changed(case, files={key: value}), tmp_path / case.kind, match)


def test_271_an_mtp_module_hands_on_its_state_after_the_norm(tmp_path):
    """Of a published one; ours of before learnt to read the state before it, and stay so through every form of file."""
    for form in ("plain", "one more", "speculators"):
        head, _ = opened(mtp(form), tmp_path / form)
        assert head.config.norm_output
    plain = opened(mtp("plain"), tmp_path / "again")[0]
    old = Head(replace(plain.config, norm_output=False), plain.tensors, plain.words)
    own.write(old, tmp_path / "own", compact=False)
    said = json.loads((tmp_path / "own/head.json").read_text())
    for new in ("norm_output", "windows", "o_bias", "mlp_bias", "own_mask"):
        said["config"].pop(new)
    (tmp_path / "own/head.json").write_text(json.dumps(said))
    assert open_head(tmp_path / "own", FIT)[0].config == old.config
    formats.mtp.write(old, tmp_path / "written")
    assert open_head(tmp_path / "written", FIT)[0].config == old.config
    formats.mtp.write(plain, tmp_path / "new")
    assert "norm_output" not in json.loads((tmp_path / "new/config.json").read_text())
    assert open_head(tmp_path / "new", FIT)[0].config == plain.config


@pytest.mark.parametrize("model_type", ["qwen3_next", "qwen3_5_text", "qwen3_5_moe"])
def test_271_norms_weigh_by_one_more_where_the_form_has_them(model_type, tmp_path):
    case = changed(mtp("one more"), {"model_type": model_type})
    head, _ = opened(case, tmp_path)
    for name, value in case.w.items():
        norm = "norm" in name
        assert torch.equal(head.floats(name), value + 1 if norm else value), name
    inner = {**case.config, "model_type": model_type}
    head, _ = opened(replace(case, config={"model_type": "outer", "text_config": inner}), tmp_path / "nested")
    assert torch.equal(head.floats("norm.weight"), case.w["norm.weight"] + 1)


def test_271_modules_of_other_rules_are_refused_by_name(tmp_path):
    case, one = mtp("plain"), torch.ones(WIDTH, 2 * WIDTH)
    for i, (files, match) in enumerate(
        [
            ({"model.layers.6.eh_proj.weight": one, "model.layers.6.enorm.weight": one[0]}, "DeepSeek's"),
            ({"model.mtp_layers.0.input_proj.weight": one}, "MiMo's"),
            ({"model.mtp_linear_proj.0.weight": one}, "ERNIE's"),
        ]
    ):
        refused(replace(case, files=files), tmp_path / str(i), match)
        with pytest.raises(LoadError, match=match):
            kind_at(tmp_path / str(i))
    twice = {name.replace("layers.0", "layers.1"): value for name, value in case.files.items()}
    refused(changed(case, files=twice), tmp_path / "twice", "holds 2 modules")
    q = "mtp.layers.0.self_attn.q_proj.weight"
    refused(changed(case, files={q: case.files[q].repeat(2, 1)}), tmp_path / "gated", "attention is gated")
    refused(changed(case, files={"mtp.layers.0.mlp.experts.0.up_proj.weight": one}), tmp_path / "moe", "mixture")


def test_272_options_of_eagle_3_1_are_read_at_the_top_and_nested(tmp_path):
    names = ("norm_output", "norm_before_residual")
    for i, said in enumerate([dict.fromkeys(names, True), {"eagle_config": dict.fromkeys(names, True)}]):
        config = opened(changed(eagle_3(), said), tmp_path / str(i))[0].config
        assert all(getattr(config, name) for name in names)
    both = {"norm_output": True, "eagle_config": {"norm_output": False}}
    refused(changed(eagle_3(), both), tmp_path / "both", "norm_output is True.*contradict")
    norms = {"norm_before_fc": True, "fc_norm": True}
    refused(changed(eagle_3(), norms), tmp_path / "norms", "only one may be on")
    refused(changed(eagle_3(), {"norm_output": "yes"}), tmp_path / "text", "true or false")


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("EAGLE-3.1", "EAGLE-3.1 nested")])
def test_272_an_option_that_is_not_understood_is_refused(name, tmp_path):
    case = CASES[name]
    refused(changed(case, {"residual_scale": 0.5}), tmp_path / "a", "residual_scale is 0.5.*not known here")
    refused(changed(case, {"logit_scale": 0.5}), tmp_path / "b", "logit_scale is 0.5.*allowed: 1")
    refused(changed(case, {"quantization_config": {"bits": 4}}), tmp_path / "c", "quantization_config")
    opened(changed(case, {"residual_scale": None, "logit_scale": 1.0}), tmp_path / "d")
    if "transformer_layer_config" in case.config:
        inner = {**case.config["transformer_layer_config"], "hidden_act": "gelu"}
        refused(changed(case, {"transformer_layer_config": inner}), tmp_path / "e", "config.hidden_act is 'gelu'")
    elif name == "EAGLE-3 of ModelOpt":
        inner = {**case.config["eagle_config"], "use_aux_hidden_state": False}
        refused(changed(case, {"eagle_config": inner}), tmp_path / "f", "use_aux_hidden_state is False.*allowed: True")


@pytest.mark.parametrize(
    "said",
    [
        {"architectures": ["LlamaForCausalLMEagle3"], "max_window_layers": 48, "sliding_window": None,
         "use_sliding_window": False, "rope_scaling": None, "attention_bias": False, "pad_token_id": 0},
        {"architectures": ["Eagle3LlamaForCausalLM"], "eagle_config": {"use_aux_hidden_state": True},
         "mlp_bias": False, "_name_or_path": "somewhere", "target_model_type": "qwen3", "modal_type": "LLM"},
        {"architectures": ["LlamaForCausalLM"], "truncated_vocab_size": 20, "draft_vocab_size": None,
         "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "id2label": {"0": "a"},
         "is_encoder_decoder": False, "top_k": 50, "bad_words_ids": None, "dtype": "bfloat16"},
    ],
)  # fmt: skip
def test_272_configs_as_they_are_published_are_read(said, tmp_path):
    head, notes = opened(changed(eagle_3(), said), tmp_path)
    assert head.config.draft_vocab == 20
    assert not notes


def test_273_words_may_stand_in_any_order_but_once(tmp_path):
    case = eagle_3_by_frequency()
    assert case.words != sorted(case.words)
    head, _ = opened(case, tmp_path / "a")
    assert head.words.tolist() == case.words
    twice = [*case.words[:-1], case.words[3]]
    refused(changed(case, files={"d2t": d2t(twice)}), tmp_path / "b", r"d2t\[19\] is .* as d2t\[3\] does")
    refused(changed(case, files={"t2d": t2d(case.words[1:])}), tmp_path / "c", "other words than t2d")
    case = changed(case, files={"t2d": t2d(case.words)})
    own.write(opened(case, tmp_path / "d")[0], tmp_path / "own")
    assert open_head(tmp_path / "own", FIT)[0].words.tolist() == case.words


def test_273_the_target_s_own_end_is_read_in_that_order(beside, tmp_path):
    """An MTP module of few words by frequency speaks through the target's rows."""
    words = Maker(50).words(20)
    case = changed(mtp("plain"), files={"d2t": d2t(words)})
    case.words = words
    made = beside.drafter("mtp", case.write(tmp_path))
    compare(beside, case, made, Plan(2, nodes=6, width=3, signals=True), lambda logp: grown(logp, 2, 3, 6), 3)


@pytest.mark.parametrize("options", [{}, {"window": 12, "sinks": 2}])
def test_275_rotations_go_on_past_the_head_s_positions(options, beside, tmp_path):
    case = changed(eagle_3(), {"max_position_embeddings": 8})
    made = beside.drafter("eagle3", case.write(tmp_path), **options)
    plan, network = Plan(2, nodes=5, width=2, signals=True), Network(case, *beside.ends)
    tokens = prompts(1, length=45)[0]
    tree, features = beside.drafted(made, tokens, plan)
    want, margin = grown(network.law(tokens[1:], features), 2, 2, 5)
    assert margin > TINY_MARGIN
    assert (paths_of(tree) == pytest.approx({path: exp(score) for path, score in want.items()}, rel=2e-3)) == (
        not options
    ), "a window sees less"


def test_276_a_narrow_head_without_an_embedding_or_an_end_is_refused(tmp_path):
    case, end = narrow(), {"lm_head.weight": torch.ones(30, 12)}
    bare = changed(case, without=("embed_tokens.weight",))
    refused(bare, tmp_path / "a", r"lm_head\.weight' is missing")
    refused(changed(bare, files=end), tmp_path / "b", "12 wide, tiny 16: .*an embedding of its own")
    loose = {"tie_word_embeddings": False, "draft_vocab_size": VOCAB}
    refused(changed(case, loose, without=("d2t",)), tmp_path / "c", "a vocabulary end of its own")
    assert opened(changed(case, files=end), tmp_path / "d")[0].config.hidden_size == 12
    joins = {"fc.weight": torch.ones(12, 12 + WIDTH)} | Maker(1).layer("layers.0.", 12, 12, first_norm=False)
    refused(Case("eagle", {**SIZES, "hidden_size": 12}, joins, joins), tmp_path / "e", "hidden_size 12 must be 16")
    mask = {"fc.weight": torch.ones(12, 32), "mask_hidden": torch.ones(32), "mask_embedding": torch.ones(12)}
    parallel = {"mask_token_id": MASK}
    refused(changed(bare, parallel, {**end, **mask}), tmp_path / "f", "an embedding of its own")


def test_277_taps_are_in_the_order_in_which_layers_run():
    assert [taps_of({}, layers) for layers in (1, 2, 3, 4, 5, 6, 28)] == [
        (0,), (1,), (0, 1, 2), (1, 2), (2,), (2, 3), (2, 14, 25)
    ]  # fmt: skip
    key = "eagle_aux_hidden_state_layer_ids"
    assert taps_of({key: [25, 2, 14, 2]}, 28) == (2, 14, 25)
    assert taps_of({key: [], "eagle_config": {key: [24, 1, 13]}}, 28) == (2, 14, 25)
    assert taps_of({key: [], "eagle_config": {key: []}}, 28) == (2, 14, 25)
    assert taps_of({key: None, "eagle_config": None}, 3) == (0, 1, 2)
    with pytest.raises(LoadError, match="contradict"):
        taps_of({key: [2, 3], "eagle_config": {key: [4, 5]}}, 28)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_277_small_targets_are_tapped_where_there_are_layers(layers, beside, tmp_path):
    small = Beside("torch" if isinstance(beside.target.runner, TorchRunner) else "native", tmp_path / "small", layers)
    taps = {1: (0,), 2: (1,), 3: (0, 1, 2)}[layers]
    words = sorted(Maker(3).words(20))
    w = eagle_3_tensors(Maker(60 + layers), len(taps))
    case = Case("eagle3", {**SIZES}, {**w, "d2t": d2t(words)}, w, taps=taps, words=words, end="own")
    made = small.drafter("eagle3", case.write(tmp_path / "head"))
    assert made.taps == taps
    compare(small, case, made, Plan(2, nodes=5, width=2, signals=True), lambda logp: grown(logp, 2, 2, 5), 4)


def test_277_other_taps_than_the_head_s_are_named_with_both_numbers(tmp_path):
    key = "eagle_aux_hidden_state_layer_ids"
    case = eagle_3_by_frequency()
    four = {"eagle_config": None, key: [1, 2, 3, 4]}
    refused(changed(case, four), tmp_path / "a", r"3 taps of 16, but its config names 4: \[1, 2, 3, 4\]")
    refused(changed(case, {"eagle_config": None}), tmp_path / "b", r"3 taps of 16, but its config asks for 2: \[2, 3\]")
    refused(changed(case, {"num_aux_hidden_states": 2}), tmp_path / "c", r"num_aux_hidden_states is 2 \(allowed: 3")
    inner = speculators_eagle_3()
    refused(changed(inner, {key: [0, 1]}), tmp_path / "d", r"3 taps of 16, but its config names 2: \[0, 1\]")
    refused(changed(case, {**four, "target_hidden_size": 16}), tmp_path / "e", "3 taps of 16, but its config names 4")


@pytest.mark.parametrize(
    ("said", "windows"),
    [
        ({"layer_types": ["sliding_attention"], "sliding_window": 4}, (4,)),
        ({"layer_types": ["full_attention"], "sliding_window": 4}, ()),
        ({"layer_types": ["full_attention"] * 36, "sliding_window": None, "use_sliding_window": False}, ()),
        ({"model_type": "mistral", "sliding_window": 9}, (9,)),
        ({"model_type": "mistral", "sliding_window": None}, ()),
        ({"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 0}, (6,)),
        ({"use_sliding_window": False, "sliding_window": 6, "max_window_layers": 0}, ()),
        ({"layer_types": ["chunked_attention"]}, "layer_types"),
        ({"layer_types": ["sliding_attention"], "sliding_window": None}, "layer_types"),
        ({"layer_types": ["sliding_attention"], "sliding_window": 4, "use_sliding_window": False}, "layer_types"),
        ({"layer_types": []}, "layer_types"),
    ],
)
def test_278_windows_of_a_head_s_layers_are_read(said, windows, beside, tmp_path):
    case = changed(eagle_3(), said)
    if isinstance(windows, str):
        refused(case, tmp_path, windows)
        return
    case.windows = windows or (None,)
    head, _ = opened(case, tmp_path)
    assert head.config.windows == windows
    made = beside.drafter("eagle3", tmp_path)
    compare(beside, case, made, Plan(2, nodes=4, width=2, signals=True), lambda logp: grown(logp, 2, 2, 4), 2)


@pytest.mark.parametrize("bias", ["q", "o", "m", "om"])
@pytest.mark.parametrize("kind", ["eagle", "mtp"])
def test_278_each_bias_is_added(kind, bias, beside, tmp_path):
    case = eagle_1() if kind == "eagle" else mtp("plain")
    layer = Maker(70).layer("layers.0.", WIDTH, first_norm=kind != "eagle", qk=kind == "mtp", bias=bias, norm=1.0)
    case.w = {**case.w, **layer}
    case.files = {**case.files, **{f"mtp.{n}" if kind == "mtp" else n: v for n, v in layer.items()}}
    case.config = {**case.config, "attention_bias": "q" in bias or "o" in bias, "mlp_bias": "m" in bias}
    made = beside.drafter(kind, case.write(tmp_path))
    compare(beside, case, made, Plan(2, nodes=5, width=2, signals=True), lambda logp: grown(logp, 2, 2, 5), 4)


def test_278_biases_and_windows_survive_our_own_forms(tmp_path):
    head, _ = opened(speculators_eagle_3(), tmp_path / "theirs")
    own.write(head, tmp_path / "own", compact=False)
    assert open_head(tmp_path / "own", FIT)[0].config == head.config
    rows = Maker(1).matrix(VOCAB, WIDTH)
    formats.speculators.write(head, tmp_path / "again", lambda words: rows, rows, "tiny")
    again, notes = open_head(tmp_path / "again", FIT)
    assert again.config == head.config
    assert not notes


def test_278_a_head_in_vllm_s_names_is_no_whole_model(tmp_path):
    case = eagle_31(False)
    case = changed(case, files={"model.embed_tokens.weight": torch.ones(VOCAB, WIDTH)})
    assert opened(case, tmp_path)[0].config.own_embedding
    assert kind_at(tmp_path) == "eagle3"
