"""The loop: batches, loss, step; kept at intervals, so that a kill at any moment costs minutes, and never a good state.

The schedule is over steps, not over time: the same seed and steps give the same head wherever sums are added in the
same order. A run that is planned by minutes measures its first steps and settles on a number then.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from time import perf_counter
from typing import Any, Protocol

import torch
from torch import Tensor

from forerun.core.errors import CapacityError, LoadError, SpecError
from forerun.train.batches import Batch

MUON = 20.0
"""How much larger a step of Muon is than one of AdamW at the same rate."""
_TIMED = 12  # steps after which a run by minutes knows how many there will be
KEPT_EACH_S = 120.0
"""How often training is kept."""
_UNTIMED = 3  # of them at the start that are not counted


class Told(Protocol):
    """What a lesson says of a step."""

    @property
    def loss(self) -> float: ...
    @property
    def agreement(self) -> tuple[float, ...]: ...


Lesson = Callable[[Mapping[str, Tensor], Batch], tuple[Tensor, Told]]
Measure = Callable[[Mapping[str, Tensor]], float]
"""What the parameters are worth, more is better: measured tau."""


@dataclass(frozen=True, slots=True)
class Course:
    """How long and how fast to train. Exactly one of `steps` and `seconds` is given."""

    steps: int | None = None
    seconds: float | None = None
    rate: float = 3e-3
    warm: float = 0.04
    """Share of the steps until the rate is whole."""
    least: float = 0.03
    """Share of the rate that is left at the end of the cosine."""
    clip: float = 1.0
    decay: float = 0.01
    measures: int = 4
    """How often tau is measured on the way, the end included."""
    patience: int = 3
    """Measurements in a row without a better tau after which it ends."""
    gentle: Mapping[str, float] = field(default_factory=dict)
    """Tensors that know something already: AdamW steps at this share of the rate; at 0 they stay as they are."""
    late: float = 0.0
    """Share of the course during which those only come up to that rate."""

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.seconds is None):
            raise SpecError("a course of training needs steps or seconds, and not both")

    def share(self, done: float) -> float:
        """Of the rate, where `done` of the course in [0, 1] is behind."""
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
        return min(1.0, (done + 1e-3) / self.warm) * (self.least + (1 - self.least) * cosine)


@dataclass(slots=True)
class State:
    """Where training stands. `best` are the parameters with the highest tau so far."""

    weights: dict[str, Tensor]
    step: int = 0
    steps: int = 0
    """Planned; 0 until it is known."""
    seconds: float = 0.0
    best: dict[str, Tensor] = field(default_factory=dict)
    best_tau: float = 0.0
    mark: str = ""
    """Of what the weights mean beside their shapes; what was kept under another one is not gone on with."""
    worse: int = 0
    taus: list[tuple[int, float]] = field(default_factory=list)
    losses: list[tuple[int, float]] = field(default_factory=list)
    agreement: tuple[float, ...] = ()
    """Of the last steps, as lessons tell it: the mean of some twenty."""


News = Callable[[State, Told, float], None]
"""(state, what the last step told, seconds that are left by the plan)."""


def train(
    state: State,
    lesson: Lesson,
    course: Course,
    stream: Callable[[int], Generator[Batch, None, None]],
    measure: Measure | None,
    kept: Path | None,
    news: News,
) -> State:
    """Train until the course is run or tau has stopped rising; `stream(step)` are the batches from that step on.

    With `kept`, a file, an interrupted run goes on from where it was kept last. A loss that is not finite raises
    SpecError, and what was kept stays as it was.
    """
    optimiser = Optimiser(state.weights, course)
    if kept is not None and kept.exists():
        _restore(kept, state, optimiser)
    state.steps = course.steps or state.steps
    watch, times, saved = _Watch(state.seconds), list[float](), perf_counter()
    batches = stream(state.step)
    try:
        while not state.steps or state.step < state.steps:
            at = perf_counter()
            done = state.step / state.steps if state.steps else watch.seconds / (course.seconds or 1.0)
            # What is drawn in a step is the step's own, so that a resumed run draws it too.
            torch.manual_seed(state.step)
            told = _step(state.weights, lesson, next(batches), optimiser, course, done)
            state.step, state.seconds = state.step + 1, watch.seconds
            times.append(perf_counter() - at)
            if not state.steps and len(times) == _TIMED:
                each = sum(times[_UNTIMED:]) / len(times[_UNTIMED:])
                state.steps = max(state.step, state.step + int(((course.seconds or 0.0) - watch.seconds) / each))
            left = state.steps - state.step
            news(state, told, left * sum(times[-20:]) / len(times[-20:]) if state.steps else math.nan)
            state.agreement = _blended(state.agreement, told.agreement)
            if state.step % 20 == 0 or not left:
                state.losses.append((state.step, told.loss))
            due = measure is not None and bool(state.steps) and _due(state.step, state.steps, course.measures)
            if due and measure:
                with watch.paused():
                    _weigh(state, measure)
            if kept and (due or perf_counter() - saved >= KEPT_EACH_S):
                _keep(kept, state, optimiser)
                saved = perf_counter()
            if state.worse >= course.patience:
                break
    finally:
        batches.close()
    if not state.best:
        state.best = {name: value.detach().clone() for name, value in state.weights.items()}
    return state


def _blended(before: tuple[float, ...], now: tuple[float, ...]) -> tuple[float, ...]:
    """A mean that forgets."""
    return tuple(0.95 * old + 0.05 * new for old, new in zip(before, now, strict=True)) if before else now


class _Watch:
    """Seconds of training, those of earlier runs included, those of measuring not."""

    def __init__(self, before: float) -> None:
        self._start = perf_counter() - before

    @property
    def seconds(self) -> float:
        return perf_counter() - self._start

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time in here does not count."""
        at = perf_counter()
        yield
        self._start += perf_counter() - at


def _due(step: int, steps: int, measures: int) -> bool:
    """Whether tau is measured after this step: `measures` times, evenly, the last at the end."""
    return any(step == round(steps * i / measures) for i in range(1, measures + 1))


def _weigh(state: State, measure: Measure) -> None:
    tau = measure({name: value.detach() for name, value in state.weights.items()})
    state.taus.append((state.step, tau))
    if tau > state.best_tau:
        state.best_tau, state.worse = tau, 0
        state.best = {name: value.detach().clone() for name, value in state.weights.items()}
    else:
        state.worse += 1


def _step(
    weights: Mapping[str, Tensor], lesson: Lesson, batch: Batch, optimiser: Optimiser, course: Course, done: float
) -> Told:
    loss, told = lesson(weights, batch)
    if not math.isfinite(told.loss):
        raise SpecError(
            f"the loss became {told.loss}: nothing of this step is kept; train with a lower --rate, or from other data"
        )
    if loss.requires_grad:  # a batch may have nothing to learn
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
        trained = [value for value in weights.values() if value.requires_grad]
        norm = torch.nn.utils.clip_grad_norm_(trained, course.clip)
        if bool(norm.isfinite()):
            optimiser.step(course.rate * course.share(done), min(1.0, done / course.late) if course.late else 1.0)
        optimiser.zero_grad()
    return told


class Optimiser:
    """Muon for matrices, AdamW for the rest, as one.

    Muon (Jordan 2024; torch's own) steps along the nearest orthogonal matrix, which halves the steps that a head needs.
    Vocabulary ends begin as the target's and are looked at in part: AdamW, at a fifth of the rate.
    """

    def __init__(self, weights: Mapping[str, Tensor], course: Course) -> None:
        for name, value in weights.items():
            value.requires_grad_(course.gentle.get(name) != 0.0)
        rest = {name: value for name, value in weights.items() if name not in course.gentle}
        wide = [value for name, value in rest.items() if value.ndim == 2 and "lm_head" not in name]
        groups: list[dict[str, Any]] = [
            {"params": [value for value in rest.values() if value.ndim != 2], "scale": 1.0},
            {"params": [value for name, value in rest.items() if value.ndim == 2 and "lm_head" in name], "scale": 0.2},
        ]
        for share in sorted({*course.gentle.values()} - {0.0}):
            held = [weights[name] for name, of in course.gentle.items() if of == share]
            groups.append({"params": held, "scale": share, "gentle": True})
        self._parts: list[torch.optim.Optimizer] = []
        if wide:
            matrices = [{"params": wide, "scale": MUON}]
            self._parts.append(torch.optim.Muon(matrices, lr=course.rate * MUON, weight_decay=course.decay))
        if left := [group for group in groups if group["params"]]:
            self._parts.append(torch.optim.AdamW(left, lr=course.rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True))

    def step(self, rate: float, gentle: float = 1.0) -> None:
        """Take one step at this rate; at that share of theirs, the tensors that know something already."""
        for part in self._parts:
            for group in part.param_groups:
                group["lr"] = rate * group["scale"] * (gentle if group.get("gentle") else 1.0)
            part.step()

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for part in self._parts:
            part.zero_grad(set_to_none=True)

    def state_dict(self) -> list[Any]:
        """What a resumed run needs."""
        return [part.state_dict() for part in self._parts]

    def load_state_dict(self, states: list[Any]) -> None:
        """Go on from there."""
        for part, state in zip(self._parts, states, strict=True):
            part.load_state_dict(state)


def _keep(path: Path, state: State, optimiser: Optimiser) -> None:
    body: dict[str, Any] = {
        name: getattr(state, name)
        for name in ("step", "steps", "seconds", "best", "best_tau", "worse", "taus", "losses", "agreement", "mark")
    }
    weights = {name: value.detach() for name, value in state.weights.items()}
    scratch = path.with_suffix(".part")
    try:
        torch.save({**body, "weights": weights, "optimiser": optimiser.state_dict()}, scratch)
        os.replace(scratch, path)
    except (OSError, RuntimeError) as error:
        scratch.unlink(missing_ok=True)
        raise CapacityError(f"training cannot be kept in {path} ({error}); what was kept before stays") from error


def _restore(path: Path, state: State, optimiser: Optimiser) -> None:
    try:
        body = torch.load(path, map_location=next(iter(state.weights.values())).device, weights_only=True)
        weights = body.pop("weights")
        if {name: value.shape for name, value in weights.items()} != {n: v.shape for n, v in state.weights.items()}:
            raise LoadError(f"{path} is of another head: give another --out, or delete it to begin anew")
        if body.get("mark", "") != state.mark:
            raise LoadError(f"{path} is of other draft words or data: give another --out, or delete it to begin anew")
        with torch.no_grad():
            for name, value in weights.items():
                state.weights[name].copy_(value)
        optimiser.load_state_dict(body.pop("optimiser"))
        for name, value in body.items():
            setattr(state, name, value)
    except (OSError, EOFError, KeyError, RuntimeError, ValueError, UnpicklingError) as error:
        raise LoadError(f"{path} cannot be read ({error}): delete it to begin anew") from error
