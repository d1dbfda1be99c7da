"""The same promises on a CUDA device; skipped where there is none."""

import json

import pytest
import torch

import forerun
from forerun.cli.main import main
from forerun.models.heads.formats import own
from forerun.testing.heads import random_config, random_head
from forerun.testing.tiny import Tiny, write_folder

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]
PROMPTS = ["abcabcabcab", "Hello, hello, hello", "x", "The cat. The dog. The"]
PARAMS = {
    "greedy": {},
    "sampled": {"temperature": 0.9, "seed": 7},
    "nucleus": {"temperature": 1.1, "top_p": 0.8, "seed": 3},
}


def answers(path, drafter, device, **params):
    with forerun.load(str(path), drafter, device=device) as engine:
        results = engine.generate_batch(PROMPTS, max_tokens=24, ignore_eos=True, **params)
        engine.parts.target.pool.check_integrity()
    return [result.token_ids for result in results]


@pytest.mark.parametrize("params", PARAMS)
@pytest.mark.parametrize("drafter", ["none", "ngram:min=1", "suffix:width=2,nodes=8", "skip:layers=1,width=2,nodes=6"])
def test_text_on_the_device_is_the_cpu_s_with_any_drafter(models, drafter, params):
    cpu = answers(models["folder"], "none", "cpu", **PARAMS[params])
    assert answers(models["folder"], drafter, "cuda", **PARAMS[params]) == cpu


@pytest.mark.parametrize("family", ["mistral", "qwen2", "qwen3", "gemma3_text"])
def test_families_on_the_device(tmp_path, family):
    extra = {"sliding_window": 16} if family == "mistral" else {}
    path = write_folder(tmp_path / family, Tiny(family, extra=extra))
    assert answers(path, "suffix:width=2,nodes=8,min_match=1", "cuda") == answers(path, "none", "cpu")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_runs_on_the_device(models, dtype):
    with forerun.load(str(models["folder"]), "ngram", device="cuda", dtype=dtype) as engine:
        assert len(engine.generate("abcabc", max_tokens=24, ignore_eos=True).token_ids) == 24


def test_phases_are_timed_with_the_device_in_step(models):
    with forerun.load(str(models["folder"]), "ngram", device="cuda") as engine:
        assert engine.generate("abcabc", max_tokens=8, ignore_eos=True).stats.seconds["score"] > 0


@pytest.mark.parametrize("kind", ["eagle", "eagle3", "p-eagle", "mtp", "medusa"])
def test_heads_on_the_device(models, tmp_path, kind):
    sizes = {} if kind == "medusa" else {"intermediate_size": 40, "heads": 4, "kv_heads": 2, "head_dim": 8}
    config = random_config(kind, 264, 32, 264 if kind == "eagle" else 120, **sizes)
    own.write(random_head(config, 5), tmp_path, compact=False)
    for params in PARAMS.values():
        cpu = answers(models["folder"], "none", "cpu", **params)
        assert answers(models["folder"], f"{kind}:path={tmp_path}", "cuda", **params) == cpu


@pytest.mark.parametrize("kind", ["eagle", "eagle3", "p-eagle", "mtp", "medusa", "medusa2", "draft"])
def test_training_on_the_device(tmp_path, kind, capsys):
    """From prompts to a folder, all of it on the device, and the same loss as on the CPU for the same corpus."""
    model = write_folder(tmp_path / "model", Tiny(hidden=32, layers=4, inner=80, max_len=512, sharpness=2.0))
    (tmp_path / "own.txt").write_text("\n".join(f"question {i}" for i in range(60)))
    words = ["train", kind, "-m", str(model), "--data", str(tmp_path / "own.txt"), "--tokens", "500", "--width", "8"]
    words += ["--answer-tokens", "16", "--steps", "4", "--measures", "1", "--batch", "256", "--weights", "auto"]
    words += ["--corpus", str(tmp_path / "corpus"), "--taps", "0,1,2"] + (["--layers", "2"] if kind == "draft" else [])
    losses = []
    for device in ("cuda", "cpu"):
        assert main([*words, "--device", device, "--out", str(tmp_path / device), "--json"]) == 0
        losses.append(json.loads(capsys.readouterr().out)["losses"][-1][1])
    assert losses[0] == pytest.approx(losses[1], rel=0.05, abs=0.02)
