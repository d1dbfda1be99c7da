"""Draft pairs whose tokenizers are nearly the same (docs/failures.md, 226), and what loading says (247)."""

import json
import warnings

import pytest
import torch
from safetensors.torch import load_file, save_file

import forerun
from forerun.cli.main import main
from forerun.core.errors import SpecError
from forerun.core.notes import Note
from forerun.native import ext
from forerun.testing.tiny import REAL, SPECIALS, Tiny, tokenizer_json, write_folder, write_gguf

LAWS = ["chosen", "foreseen", "sampled", "distinct"]
TOLD = {"max_tokens": 20, "ignore_eos": True}


def edited(folder, more=(), renamed=(), ordinary=()):
    """The folder with further added tokens, with others' names changed, and with ordinary tokens respelled."""
    said = tokenizer_json()
    plain = dict.fromkeys(("special", "single_word", "lstrip", "rstrip", "normalized"), False)
    said["added_tokens"] += [{"id": REAL + i, "content": name, **plain} for i, name in enumerate(more)]
    for entry in said["added_tokens"]:
        entry["content"] = dict(renamed).get(entry["content"], entry["content"])
    vocab = said["model"]["vocab"]
    for old, new in ordinary:
        vocab[new] = vocab.pop(old)
    (folder / "tokenizer.json").write_text(json.dumps(said))
    return folder


PAIRS = {
    "two more in the target": ({"more": ["<tool>", "</tool>"]}, {}),
    "two more in the draft": ({}, {"more": ["<tool>", "</tool>"]}),
    "one special renamed": ({}, {"renamed": {SPECIALS[2]: "<|other|>"}.items()}),
    "all of them renamed, one more": ({"more": ["<a>"]}, {"renamed": {s: s.upper() for s in SPECIALS}.items()}),
    "other added ones": ({"more": ["<a>", "<b>"]}, {"more": ["<b>"]}),
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A target and a draft model of the same weights but for the draft's table, which ends with its tokenizer."""
    root = tmp_path_factory.mktemp("pair")
    target = write_folder(root / "target", Tiny(tied=False))

    def make(name):
        mine, other = PAIRS[name]
        edited(target, **mine)
        draft = write_folder(root / "draft", Tiny(tied=False, vocab=REAL + len(other.get("more", ()))))
        tensors, rows = load_file(target / "model.safetensors"), REAL + len(other.get("more", ()))
        for table in ("lm_head.weight", "model.embed_tokens.weight"):
            tensors[table] = tensors[table][:rows].clone()
        save_file(tensors, draft / "model.safetensors")
        return str(target), str(edited(draft, **other))

    return make


@pytest.mark.parametrize("name", PAIRS)
def test_226_near_equal_tokenizers_make_a_pair(name, pair, runtime):
    target, draft = pair(name)
    weights = ",weights=f32" if runtime == "native" else ""
    odd = {i for i in range(257, 264) if i >= REAL or name in ("one special renamed", "all of them renamed, one more")}
    prompts = [
        "abcabc",
        [97, 259, 98],
        [97, 260 if "more" in PAIRS[name][0] else 257, 98],
        [261 if "target" in name else 99],
    ]
    for law in LAWS:
        for params in ({}, {"temperature": 0.9, "seed": 4, "logit_bias": {259: 3.0, 258: 2.0}}):
            if params and law in ("sampled", "distinct"):
                params = {**params, "repetition_penalty": 1.2}
            spec = f"model:path={draft},law={law},level_cost=0,depth=3{weights}"
            with forerun.load(target, runtime=runtime) as engine:
                plain = engine.generate_batch(prompts, **TOLD, **params)
            with pytest.warns(Note, match="never guessed"), warnings.catch_warnings():
                engine = forerun.load(target, spec, runtime=runtime, costs="free")
            seen, inner = [], engine.parts.drafter.draft
            engine.parts.drafter.draft = lambda *args, i=inner, s=seen: s.append(i(*args)) or s[-1]
            with engine:
                got = engine.generate_batch(prompts, **TOLD, **params)
            if not params or law in ("chosen", "foreseen"):
                assert [r.token_ids for r in got] == [r.token_ids for r in plain]
            guessed = {token for made in seen for tree in made.trees for token in tree.tokens[1:]}
            assert guessed
            shared = {i for i in odd if name == "one special renamed" and i != 259}
            assert not guessed & (odd - shared)


def test_226_what_the_draft_model_has_no_row_for_ends_its_drafts(pair, runtime):
    target, draft = pair("two more in the target")
    with pytest.warns(Note):
        engine = forerun.load(target, f"model:path={draft},level_cost=0,depth=3", runtime=runtime)
    with engine:
        assert engine.generate([97, 98], **TOLD).stats.drafted
        assert not engine.generate([97, 260, 98], **TOLD).stats.drafted
        late = engine.generate([97, 98], logit_bias={261: 100.0}, **TOLD)
        assert late.token_ids == [261] * 20
        assert late.stats.drafted <= 3
        assert engine.generate([97, 98], **TOLD).stats.drafted


@pytest.mark.parametrize(
    "other",
    [{"ordinary": [("a", "a" * 3)]}, {"ordinary": [("a", "X"), ("b", "a"), ("X", "b")]}, {"ordinary": [("th", "he")]}],
    ids=str,
)
def test_226_other_ordinary_tokens_are_another_tokenizer(other, tmp_path):
    target = write_folder(tmp_path / "target")
    draft = write_folder(tmp_path / "draft")
    said = tokenizer_json()
    vocab = said["model"]["vocab"]
    if other["ordinary"] == [("th", "he")]:
        said["model"]["merges"] = [["h", "e"]]
    for old, new in other["ordinary"]:
        vocab[new] = vocab.pop(old)
    (draft / "tokenizer.json").write_text(json.dumps(said))
    with pytest.raises(SpecError, match=r"another tokenizer.*no added token"):
        forerun.load(target, f"model:path={draft}")


def test_226_a_tokenizer_with_more_ids_than_the_model_has_rows(tmp_path, runtime):
    folder = edited(write_folder(tmp_path / "m", Tiny(vocab=REAL)), more=["[PAD]"])
    with pytest.warns(Note, match="tokenizer has 261 ids, the model 260"):
        engine = forerun.load(folder, f"model:path={folder},level_cost=0", runtime=runtime)
    with engine:
        assert all(token < REAL for token in engine.generate("abc", **TOLD).token_ids)
        with pytest.raises(SpecError, match=r"vocabulary|260"):
            engine.generate("a[PAD]")


def err_of(capsys, *argv):
    """What `generate` says on stderr beside its answer."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(["generate", *map(str, argv), "--max-tokens", "1", "x"]) == 0
    return capsys.readouterr().err


@pytest.mark.parametrize(("kind", "becomes"), [("Q5_0", "int8"), ("F16", "bf16"), ("Q8_0", None), ("F32", None)])
@pytest.mark.skipif(bool(ext.why_not()), reason="the compiled extension is not there")
def test_247_another_format_than_the_file_s_is_said_in_one_line(kind, becomes, tmp_path, capsys):
    path = write_gguf(tmp_path / "m.gguf", Tiny(hidden=64, inner=96), quantization=kind)
    for _ in range(2):  # packed now, and out of the cache
        notes = [line for line in err_of(capsys, "-m", path).splitlines() if line.startswith("note: ")]
        assert len(notes) == bool(becomes)
        if becomes:
            assert notes[0].startswith(f"note: m.gguf: {kind}")
            assert f"so it is {becomes}" in notes[0]
            assert "KiB, in the file" in notes[0]
    assert "note: " not in err_of(capsys, "-m", path, "--weights", "int8")  # that was asked for


@pytest.mark.parametrize("kind", ["Q4_0", "BF16"])
def test_247_so_is_unpacking_for_other_runtimes(kind, tmp_path, capsys):
    path = write_gguf(tmp_path / "m.gguf", Tiny(hidden=64, inner=96), quantization=kind)
    said = err_of(capsys, "-m", path, "--runtime", "torch")
    assert said.count("note: ") == 1
    assert f"note: m.gguf: {kind} becomes float32; the matrices take" in said
    assert "note: " not in err_of(capsys, "-m", path, "--runtime", "torch", "--dtype", "float32")


def test_247_a_folder_s_notes_reach_the_command_line(tmp_path, capsys):
    """The one way in which all that reading a model remarks is told."""
    folder = write_folder(tmp_path / "m", Tiny())
    head = {"lm_head.weight": torch.zeros(264, 32)}
    save_file(load_file(folder / "model.safetensors") | head, folder / "model.safetensors")
    assert "note: m: the config says tie_word_embeddings true" in err_of(capsys, "-m", folder)


def test_205_transformers_reads_the_config_as_the_tensors_say(tmp_path):
    """On runtime hf too, or it is said which tensors are not read."""
    tensors = Tiny().tensors()
    shapes = {"self_attn.q": 32, "self_attn.k": 16, "self_attn.v": 16, "self_attn.o": 32}
    biases = {f"model.layers.{i}.{part}_proj.bias": torch.ones(n) for i in range(2) for part, n in shapes.items()}
    odd = {"biases": biases, "head": {"lm_head.weight": 0.5 - tensors["model.embed_tokens.weight"]}}
    for name, more in odd.items():
        folder = write_folder(tmp_path / name)
        save_file(tensors | more, folder / "model.safetensors", {"format": "pt"})
        said = {}
        for on in ("torch", "hf"):
            with pytest.warns(Note, match="config") as notes, forerun.load(folder, runtime=on) as engine:
                said[on] = engine.generate("abc", max_tokens=1, logprobs=1, ignore_eos=True).tokens[0].logprobs.token
            assert not any("does not read" in str(note.message) for note in notes)
        assert said["torch"] == pytest.approx(said["hf"], abs=1e-3)
    folder = write_folder(tmp_path / "stranger")
    save_file(tensors | {"model.stranger.weight": torch.ones(2)}, folder / "model.safetensors", {"format": "pt"})
    with pytest.warns(Note, match=r"transformers does not read 1 of the tensors, first 'model\.stranger\.weight'"):
        forerun.load(folder, runtime="hf").close()
