"""The native runner behind a target and an engine: what of its answers and its memory is its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "models"))
_ext = pytest.importorskip("forerun.native._ext", reason="the native extension was not built")

from families import seq, target, text

import forerun
from forerun.core.draft import Tree
from forerun.core.errors import CapacityError, SpecError
from forerun.core.params import SamplingParams
from forerun.core.work import Item


def test_greedy_needs_no_pass_over_the_logits():
    ours, each = target("llama", "native"), seq(text(9))
    ours.begin(each)
    rows = ours.score([Item(each, 0, 8, Tree.chain(each.last, [1, 2, 3]))])
    first = [rows.argmax(0, node) for node in range(4)]
    assert first == [int(rows.raw(0, node).argmax()) for node in range(4)]
    rows.raw(0, 1)[:] = float("nan")
    assert rows.argmax(0, 1) == first[1], "the runtime's own, found on the way"
    each.params = SamplingParams(logit_bias={5: 100.0})
    assert rows.argmax(0, 2) == 5, "edited logits are looked at"


def test_blocks_have_one_size():
    with pytest.raises(SpecError, match="blocks of 16 tokens, got block_size 8"):
        target("llama", "native", block_size=8)


@pytest.mark.parametrize(
    ("kv", "token_bytes"), [("f32", 2 * 2 * 24 * 4), ("bf16", 2 * 2 * 24 * 2), ("int8", 2 * 2 * 32)]
)
def test_memory_is_what_keys_and_values_take(kv, token_bytes):
    """Two layers of two heads; values of 8 dimensions are padded to 16, int8 vectors have a scale each."""
    ours = target("llama", "native", kv=kv, kv_tokens=64)
    assert ours.runner.facts.token_bytes == token_bytes
    assert ours.kv_bytes == 64 * token_bytes


@pytest.mark.parametrize(
    ("weights", "kv", "dtype", "memory"),
    [
        ("f32", "auto", "float32", "f32"), ("bf16", "auto", "bfloat16", "bf16"), ("int8", "auto", "int8", "bf16"),
        ("int8", "f32", "int8", "f32"), ("bf16", "int8", "bfloat16", "int8"),
    ],
)  # fmt: skip
def test_memory_follows_the_weights_unless_told(weights, kv, dtype, memory):
    ours = target("llama", "native", weights, kv)
    assert (ours.spec.dtype, ours.runner.kv_format, ours.spec.device) == (dtype, memory, "cpu")


@pytest.mark.parametrize("weights", ["auto", "f32", "bf16", "int8", "q4", "nf4"])
@pytest.mark.parametrize("kv", ["auto", "int8"])
def test_every_format_keeps_the_text_under_speculation(models, weights, kv):
    prompts = ["abcabcabcab", "Hello, hello, hello", "x"]
    told = {}
    for drafter in ("none", "suffix:width=3,nodes=12", f"model:path={models['draft']}", "skip:layers=1"):
        with forerun.load(models["folder"], drafter, runtime="native", weights=weights, kv=kv) as engine:
            for params in ({}, {"temperature": 0.9, "top_p": 0.9, "seed": 7}):
                results = engine.generate_batch(prompts, max_tokens=20, ignore_eos=True, **params)
                told.setdefault(str(params), []).append([result.token_ids for result in results])
    assert all(each == answers[0] for answers in told.values() for each in answers)


def test_the_text_does_not_depend_on_threads_chunks_or_company(models):
    before = _ext.threads(), torch.get_num_threads()
    told, prompt = set(), list(range(40, 140))
    try:
        for threads, chunk in ((1, 512), (2, 512), (1, 7), (2, 33)):
            options = {"runtime": "native", "weights": "bf16", "threads": threads, "chunk": chunk}
            with forerun.load(models["folder"], "ngram", **options) as engine:
                results = engine.generate_batch([prompt, "abc", "abcabc"], max_tokens=24, ignore_eos=True)
                told.add(tuple(results[0].token_ids))
                told.add(tuple(engine.generate(prompt, max_tokens=24, ignore_eos=True).token_ids))
    finally:
        _ext.set_threads(before[0])
        torch.set_num_threads(before[1])
    assert len(told) == 1


def test_a_forward_for_which_there_is_no_memory_is_one_clear_line(monkeypatch):
    ours, each = target("llama", "native"), seq(text(9))
    ours.begin(each)

    class Full:
        def run(self, *_):
            raise MemoryError

    monkeypatch.setitem(ours.runner._programs, (), Full())
    with pytest.raises(CapacityError, match="a forward of 9 tokens"):
        ours.score([Item(each, 0, 8, Tree.root(each.last))])
    assert ours.held(each) == 0, "nothing was booked"


def test_a_warm_start_leaves_the_model_file_and_its_readers_alone(models, tmp_path):
    code = f"""
        import sys
        import forerun
        path = {str(models["gguf"])!r}
        opened = []
        sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event in ("open", "mmap.__new__") else None)
        with forerun.load(path, "ngram") as engine:
            assert engine.parts.target.runner.packed
            print(engine.generate("abc", max_tokens=8, ignore_eos=True).token_ids)
        readers = ("gguf", "transformers", "huggingface_hub", "safetensors", "forerun.models.network")
        print([name for name in readers if name in sys.modules], path in opened)
    """
    environment = {**os.environ, "FORERUN_HOME": str(tmp_path / "home"), "PYTHONWARNINGS": "ignore"}
    cold, warm = (
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for _ in range(2)
    )
    assert cold[0] == warm[0]
    assert cold[1].endswith("True")
    assert warm[1] == "[] False"
