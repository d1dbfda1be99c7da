"""What a change of structure must leave as it is: texts and counts of a grid of engines, views and forms of files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from forerun.assemble import Config, Foundation, engine_over, foundation
from forerun.lab.experiments import views
from forerun.lab.paired import Samples, Unit, arm_figures
from forerun.lab.restored import restored
from forerun.lab.sample import Sample
from forerun.lab.views import Chart, spoken
from forerun.models.heads.formats import own
from forerun.testing.heads import random_config, random_head
from forerun.testing.tiny import Tiny, write_folder, write_gguf
from forerun.workloads.workload import workload

ROOT = Path(__file__).parent.parent
FOUND = Path(__file__).parent / "nets.d"
Outcomes = dict[str, Any]

SAMPLING: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "seeded": {"temperature": 0.8, "top_p": 0.95, "seed": 7},
}
TINY = Tiny(hidden=64, inner=64, layers=3, max_len=512, tied=False, sharpness=3.0)
FORMATS = ("f32", "bf16", "int8", "nf4", "Q8_0", "Q4_0", "Q4_1")
HEADS = ("eagle", "eagle3", "p-eagle", "medusa", "mtp")
DRAFTERS = (
    "none", "ngram:min=1", "suffix", "suffix:width=3,nodes=12", "skip:layers=1", "skip:layers=2,law=sampled",
    "model:path={draft}", "model:path={draft},law=distinct,width=2,nodes=8", "first_of:of=ngram+suffix",
    "mixed:of=ngram+skip",
    *(f"{kind}:path={{heads}}/{kind}" for kind in HEADS), "eagle3:path={heads}/eagle3,width=1",
)  # fmt: skip
COUNTS = ("drafted", "accepted", "target_passes")
PLACE = ("workload", "prompt", "turn", "round")
SAMPLED = ("tokens", "tau", "drafted", "accepted", "same_text", "speedup", "speedup_total", "draft_share")
REAL = ("none", "ngram", "suffix", "skip:layers=20", "eagle3", "p-eagle", "medusa", "mtp")
REAL_FORMATS = ("auto", "bf16", "int8")


def tiny(folder: Path, prompts: int = 40, formats: Sequence[str] = FORMATS) -> Outcomes:
    """Every drafter on a tiny random model in every format."""
    draft = write_folder(folder / "draft", replace(TINY, layers=1, seed=5))
    for kind in HEADS:
        sizes = {} if kind == "medusa" else {"intermediate_size": 40, "heads": 4, "kv_heads": 2, "head_dim": 8}
        own.write(random_head(random_config(kind, TINY.vocab, TINY.hidden, **sizes), 1), folder / "heads" / kind)
    drafters = [text.format(draft=draft, heads=folder / "heads") for text in DRAFTERS]
    asked = [f"{i}, {i + 1}, {i + 2}, {i % 3}" for i in range(prompts)]
    found = {}
    for format in formats:
        base = foundation(_config(folder, format))
        for name, drafter in zip(DRAFTERS, drafters, strict=True):
            found |= {f"tiny {format} {name} {how}": one for how, one in outcomes(base, drafter, asked, 12)}
    return found


def _config(folder: Path, format: str) -> Config:
    sizes: dict[str, Any] = {"kv_tokens": 8192, "max_batch": 3}
    if format.startswith("Q"):
        return Config(str(write_gguf(folder / f"{format}.gguf", TINY, quantization=format)), **sizes)
    return Config(str(write_folder(folder / "model", TINY)), weights=format, **sizes)  # type: ignore[arg-type]


def real(folder: Path) -> Outcomes:
    """Drafters that come with forerun on SmolLM2: 10 prompts of 24 tokens."""
    asked = [prompt.text for name in ("code", "dialogue") for prompt in workload(name).prompts[:5]]
    found = {}
    for format in REAL_FORMATS:
        base = foundation(Config("smollm2", weights=format, kv_tokens=8192, max_batch=4))  # type: ignore[arg-type]
        for drafter in REAL:
            found |= {f"real {format} {drafter} {how}": one for how, one in outcomes(base, drafter, asked, 24)}
    return found


def outcomes(base: Foundation, drafter: str, asked: Sequence[str], tokens: int) -> Iterator[tuple[str, list[Any]]]:
    """Of each way of sampling: a digest of all token ids, tokens drafted and accepted, target passes."""
    for how, params in SAMPLING.items():
        with engine_over(base, drafter) as engine:
            done = engine.generate_batch(list(asked), max_tokens=tokens, ignore_eos=True, **params)
        stats = [result.choices[0].stats for result in done]
        ids = repr([result.token_ids for result in done])
        yield how, [_digest(ids), *(sum(getattr(one, name) for one in stats) for name in COUNTS)]


def files(folder: Path) -> Outcomes:
    """Of each results file: what its views say, and the paths of its keys."""
    found: Outcomes = {}
    for path in sorted((ROOT / "results").glob("*.json")):
        held = json.loads(path.read_text(encoding="utf-8"))
        try:
            shown = views(held["experiment"], held["figures"])
            said = [spoken(shown), *(repr(view) for view in shown if isinstance(view, Chart))]
        except Exception as error:
            said = [f"{type(error).__name__}: {error}"]
        found[f"views {path.stem}"] = [_digest(repr(said)), len(said[0].splitlines())]
        found[f"keys {path.stem}"] = _digest(repr(sorted(set(_paths(held)))))
    return found


def _paths(value: object, at: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _paths(inner, f"{at}.{name}")
    elif isinstance(value, list):
        for inner in value:
            yield from _paths(inner, f"{at}[]")
    else:
        yield at


def samples(folder: Path) -> Outcomes:
    """Figures of files that pair arms, computed anew from their samples: how many arms are the same, of how many."""
    found: Outcomes = {}
    for path in sorted((ROOT / "results").glob("*.json")):
        held = json.loads(path.read_text(encoding="utf-8"))
        works = held["figures"].get("workloads", {})
        if works and held["experiment"] == "domains":
            units = list(_units(held["samples"]))
            same = [
                all(figures[key] == new[key] for key in SAMPLED if key in figures)
                for name, work in works.items()
                for arm, figures in work["arms"].items()
                for new in [arm_figures(Samples(units).of(name), arm)]
            ]
            found[f"samples {path.stem}"] = [sum(same), len(same)]
    return found


def _units(told: Sequence[Outcomes]) -> Iterator[Unit]:
    places: dict[tuple[Any, ...], dict[str, Sample]] = {}
    for one in told:
        own = {key: value for key, value in one.items() if key not in (*PLACE, "arm")}
        places.setdefault(tuple(one[key] for key in PLACE), {})[one["arm"]] = restored(Sample, own)
    for place, arms in places.items():
        yield Unit(*place, arms)


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]


QUICK: dict[str, Any] = {"prompts": 8, "formats": ("f32", "int8")}
_PARTS: dict[str, Callable[..., Outcomes]] = {"tiny": tiny, "real": real, "files": files, "samples": samples}


def outcomes_of(part: str, folder: Path, sizes: Mapping[str, Any]) -> Outcomes:
    """One part of the net; `folder` is for models, `sizes` those of the tiny grid."""
    return _PARTS[part](folder, **sizes if part == "tiny" else {})


def differences(before: Outcomes, now: Outcomes) -> list[str]:
    """What is not as it was, a line each."""
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return [f"{name}: {before.get(name, 'nothing')} -> {now.get(name, 'nothing')}" for name in names]
