"""What to do, given what was measured: the decision, and a command to act on it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from forerun.assemble import Config
from forerun.lab.advice.elsewhere import llama_cpp, vllm
from forerun.lab.bench import PLAIN
from forerun.lab.stats import FEWEST

_UNSAID = ("model", "drafter", "reuse", "chunk", "max_batch", "timed")
"""Fields of Config that the command has in another form, or has no option for."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What advice rests on."""

    names: tuple[str, ...]
    """Drafters of which at least one shape was tried, on known answers or live."""
    left: tuple[str, ...] = ()
    """Drafters that should have been tried, and none of whose shapes was."""
    noise: Mapping[str, Any] | None = None
    """The noise floor; None where nothing could be timed."""


def recommend(arms: Mapping[str, Any], config: Config, params: Mapping[str, Any], basis: Tried) -> dict[str, Any]:
    """Of the arms that are faster by total time beyond the noise the one with the largest total, else none.

    `arms` are figures with `verdict_total`; the command has the options of `config` and the sampling of `params`.
    `speculate` is None where what was measured allows no conclusion.
    """
    tried = sorted((name for name in arms if name != PLAIN), key=lambda name: -(_value(arms[name]) or 0.0))
    paying = [name for name in tried if pays(arms[name])]
    spec = paying[0] if paying else "none"
    untold = None if paying else unknown(arms, tried, basis)
    if paying:
        why = "faster than plain decoding beyond the noise of this machine"
    elif untold:
        why = untold
    elif tried:
        why = _against(tried[0], arms[tried[0]])
    else:
        why = "no candidate was expected to be faster than plain decoding"
    taken: Mapping[str, Any] = arms[spec] if paying else {}
    return {
        "speculate": None if untold else bool(paying),
        "spec": spec,
        "tried": list(basis.names),
        "not_tried": list(basis.left),
        **{name: taken.get(name) for name in ("speedup", "speedup_total", "speedup_answer")},
        "best_not_taken": None if paying or not tried else tried[0],
        "why": why,
        "command": command(config, params, spec),
        "vllm": vllm(spec),
        "llama_cpp": llama_cpp(spec),
    }


def unknown(arms: Mapping[str, Any], tried: Sequence[str], basis: Tried) -> str | None:
    """Why nothing can be concluded against speculation; None where it can."""
    if not basis.names:
        return "no drafter was tried"
    said = [arms[name]["verdict_total"] for name in tried]
    if said and set(said) <= {None, "too few prompts"}:
        return _against(tried[0], arms[tried[0]])
    if basis.noise is not None and not basis.noise["calm"]:
        floor = f"{basis.noise['value']:.3f}"
        return f"the machine was not quiet, plain decoding took {floor} times as long as itself: measure again"
    return None


def pays(figures: Mapping[str, Any]) -> bool:
    """Whether an arm may be recommended: its total is faster beyond the noise, also without answers that loop, and
    whole answers, the reading of the prompt included, do not take longer than without it."""
    total, whole, rest = _value(figures), _value(figures, "speedup_answer"), _without_loops(figures)
    gains = total is not None and total > 1.0 and figures["verdict_total"] == "faster"
    return gains and (whole is None or whole >= 1.0) and (rest is None or (_value(rest) or 0.0) > 1.0)


def _without_loops(figures: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """An arm's figures over the answers that do not loop; None where none loops."""
    found: Mapping[str, Any] | None = (figures.get("looping") or {}).get("without")
    return found


def _against(best: str, figures: Mapping[str, Any]) -> str:
    """Why the best of the arms that were tried is not recommended."""
    said, whole = figures["verdict_total"], _value(figures, "speedup_answer")
    if said is None:
        return "answers were too short to time"
    if said == "too few prompts":
        return f"too few prompts to tell: {figures['prompts']} were timed and {FEWEST} are needed, give more of them"
    if said == "faster" and whole is not None and whole < 1.0:
        return f"{best} is faster once the prompt is read, but reads it so slowly that whole answers take longer"
    if said == "faster" and (rest := _without_loops(figures)) is not None:
        many = f"{figures['looping']['answers']} of {figures['looping']['of']} answers loop"
        left = (
            f"over the {rest['prompts']} others it is {_value(rest):.2f}x" if rest["prompts"] else "no other was timed"
        )
        return f"{best} gains where the model repeats itself alone: {many}, {left}"
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
