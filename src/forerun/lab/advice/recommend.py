"""What to do, given what was measured: the decision, and a command to act on it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from forerun.assemble import Config
from forerun.lab.advice.elsewhere import llama_cpp, vllm
from forerun.lab.bench import PLAIN
from forerun.lab.stats import FEWEST

_UNSAID = ("model", "drafter", "reuse", "chunk", "max_batch", "timed")
"""Fields of Config that the command has in another form, or has no option for."""


def recommend(arms: Mapping[str, Any], config: Config, params: Mapping[str, Any]) -> dict[str, Any]:
    """Of the arms that are faster by total time beyond the noise the one with the largest total, else none.

    `arms` are figures with `verdict_total`; the command has the options of `config` and the sampling of `params`.
    """
    tried = sorted((name for name in arms if name != PLAIN), key=lambda name: -(_value(arms[name]) or 0.0))
    paying = [name for name in tried if pays(arms[name])]
    spec = paying[0] if paying else "none"
    if paying:
        why = "faster than plain decoding beyond the noise of this machine"
    elif tried:
        why = _against(tried[0], arms[tried[0]])
    else:
        why = "no candidate was expected to be faster than plain decoding"
    taken: Mapping[str, Any] = arms[spec] if paying else {}
    return {
        "speculate": bool(paying),
        "spec": spec,
        **{name: taken.get(name) for name in ("speedup", "speedup_total", "speedup_answer")},
        "best_not_taken": None if paying or not tried else tried[0],
        "why": why,
        "command": command(config, params, spec),
        "vllm": vllm(spec),
        "llama_cpp": llama_cpp(spec),
    }


def pays(figures: Mapping[str, Any]) -> bool:
    """Whether an arm may be recommended: its total is faster beyond the noise, and whole answers, the reading of the
    prompt included, do not take longer than without it."""
    total, whole = _value(figures), _value(figures, "speedup_answer")
    gains = total is not None and total > 1.0 and figures["verdict_total"] == "faster"
    return gains and (whole is None or whole >= 1.0)


def _against(best: str, figures: Mapping[str, Any]) -> str:
    """Why the best of the arms that were tried is not recommended."""
    said, whole = figures["verdict_total"], _value(figures, "speedup_answer")
    if said is None:
        return "answers were too short to time"
    if said == "too few prompts":
        return f"too few prompts to tell: {figures['prompts']} were timed and {FEWEST} are needed, give more of them"
    if said == "faster" and whole is not None and whole < 1.0:
        return f"{best} is faster once the prompt is read, but reads it so slowly that whole answers take longer"
    return f"the best candidate, {best}, is not faster beyond the noise of this machine ({said})"


def _value(figures: Mapping[str, Any], name: str = "speedup_total") -> float | None:
    found = figures.get(name)
    return None if found is None else float(found["value"])


def command(config: Config, params: Mapping[str, Any], spec: str) -> str:
    """`forerun generate` as measured, with the drafter `spec`: every option that is not the default, for a shell."""
    words = ["forerun", "generate", "-m", config.model, "-d", spec]
    given = {
        field.name: getattr(config, field.name)
        for field in fields(config)
        if field.name not in _UNSAID and getattr(config, field.name) != field.default
    }
    for name, value in {**given, **params}.items():
        if value is not None and value is not False:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join([*words, "…"])
