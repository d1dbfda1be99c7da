"""Heads of every published form, from the folders that their programs write, draft the trees of their formulas."""

from __future__ import annotations

from math import exp

import pytest
import torch
from published import LAYERS, MASK, SIZES, TINY_MARGIN, VOCAB, WIDTH, Case, Maker, Network, fixed, grown

from forerun import heads
from forerun.core.noise import SeededNoise
from forerun.core.params import SamplingParams
from forerun.core.plan import Plan
from forerun.core.seq import Seq
from forerun.core.work import Item
from forerun.drafters.names import drafter_entry
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
        self.target.tap(drafter.taps)
        self.target.begin(seq)
        drafter.begin(seq)
        assert self.target.reserve(seq, len(tokens))
        rows = self.target.score([Item(seq, 0, len(tokens) - 1)])
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
