"""The nearest options of other engines for one of our drafters.

Their drafters look things up by their own rules and pay their own costs, so a gain measured here is none there:
`forerun lab endpoint` measures it. Names are those of vLLM 0.33 (`--speculative-config`) and of llama.cpp's
docs/speculative.md of 2026.
"""

from __future__ import annotations

import json
from typing import Any

from forerun.core.options import Spec, build
from forerun.drafters.names import drafter_entry
from forerun.drafters.specs import split_plan

KNOWN = ("ngram", "suffix", "model")  # drafters that others have too
HEADS = {"eagle": "safeai", "eagle3": "safeai", "p-eagle": "speculators"}
"""Heads that vLLM reads, and the form of `forerun head --export` that it reads them in; it drafts chains with them."""


def vllm(spec: str) -> str:
    """Options of `vllm serve`, or why there are none."""
    name, options, k = _read(spec)
    if name == "none":
        return "no --speculative-config"
    if name in HEADS:
        method = {"method": "eagle3", "parallel_drafting": True} if name == "p-eagle" else {"method": name}
        said = json.dumps({**method, "model": "FOLDER", "num_speculative_tokens": k})
        return f"--speculative-config '{said}', with the head from `forerun head … --export {HEADS[name]} --out FOLDER`"
    if name not in KNOWN:
        return f"none: it has no drafter like {name!r}"
    config: dict[str, object] = {"method": name, "num_speculative_tokens": k}
    if name == "ngram":
        # lengths of matches: how far is drafted does not bound them
        config |= {"prompt_lookup_min": options.min, "prompt_lookup_max": options.max}
    elif name == "suffix":
        config |= {"suffix_decoding_max_spec_factor": options.factor}
        config |= {"suffix_decoding_min_token_prob": options.min_prob}
    else:
        config = {"model": options.path, "num_speculative_tokens": k}
    return f"--speculative-config '{json.dumps(config)}'"


def llama_cpp(spec: str) -> str:
    """Options of `llama-server`, or why there are none."""
    name, options, k = _read(spec)
    if name == "none":
        return "no --spec-type"
    if name == "ngram":
        return f"--spec-type ngram-simple --spec-ngram-size-n {options.min} --draft-max {k}"
    if name == "suffix":
        return f"--spec-type ngram-map-k --spec-ngram-size-n {options.min_match} --draft-max {k}"
    if name == "model":
        return f"-md {options.path} --draft-max {k}"
    if name == "eagle3":
        return "none: it drafts with EAGLE-3 heads too, but reads them from .gguf files, which forerun does not write"
    return f"none: it has no drafter like {name!r}"


def _read(spec: str) -> tuple[str, Any, int]:
    """A drafter's name, its options if others have one like it, and how many tokens it drafts."""
    parsed = Spec.parse(spec)
    plan, _, own = split_plan(parsed)
    known = parsed.name in KNOWN
    options = build(drafter_entry(parsed.name).load().Options, own, parsed.name) if known else None
    return parsed.name, options, min(plan.depth, plan.nodes)
