"""The loop: batches, loss, step; saved at intervals, so that a kill at any moment costs little, and never a good state.

By steps, the same seed gives the same head wherever sums are added in the same order, broken off in between or not. By
seconds, the schedule follows the clock, measuring included, so that the time is held whatever else the machine does.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from pickle import UnpicklingError
from time import perf_counter
from typing import Any, Protocol

import torch
from torch import Tensor

from forerun.core.errors import LoadError, SpecError
from forerun.train.batches import Batch
from forerun.train.disk import written
from forerun.train.halting import Halt
from forerun.train.muon import Muon

MUON = 20.0
"""How much larger a step of Muon is than one of AdamW at the same rate."""
KEPT_EACH_S = 30.0
"""How often training is saved, at most."""
SAVING = 0.02
"""Share of the time that saving may take."""
_LATELY = 20
"""Steps whose mean is the pace."""


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
    """How long and how fast to train: for `steps`, or `seconds` with measuring, or what of both is over first."""

    steps: int | None = None
    seconds: float | None = None
    """From now on: a course that goes on had others before."""
    weighing: float = 0.0
    """Seconds that measuring tau takes, as far as one knows."""
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
    dtype: torch.dtype = torch.bfloat16
    """What Muon computes in."""
    gentle: Mapping[str, float] = field(default_factory=dict)
    """Tensors that know something already: AdamW steps at this share of the rate; at 0 they stay as they are."""
    late: float = 0.0
    """Share of the course during which those only come up to that rate."""

    def __post_init__(self) -> None:
        if self.steps is None and self.seconds is None:
            raise SpecError("a course of training needs steps or seconds")

    def done(self, step: int, seconds: float) -> float:
        """How much of the course is behind, from 0 to 1."""
        by_step = step / self.steps if self.steps else 0.0
        by_time = 0.0 if self.seconds is None else seconds / max(self.seconds, 1e-9)
        return min(1.0, max(by_step, by_time))

    def share(self, done: float) -> float:
        """Of the rate, where `done` of the course in [0, 1] is behind."""
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
        return min(1.0, (done + 1e-3) / self.warm) * (self.least + (1 - self.least) * cosine)


@dataclass(slots=True)
class State:
    """Where training stands. `best` are the parameters with the highest tau so far."""

    weights: dict[str, Tensor]
    step: int = 0
    seconds: float = 0.0
    """Of training, measuring included."""
    measuring: float = 0.0
    """Of them, those of measuring."""
    measured_at: float = 0.0
    """How much of the course was behind at the last measurement."""
    ended: bool = False
    """Whether the course is run."""
    best: dict[str, Tensor] = field(default_factory=dict)
    best_tau: float = 0.0
    mark: str = ""
    """Of what the weights mean beside their shapes; what was kept under another one is not gone on with."""
    worse: int = 0
    taus: list[tuple[int, float]] = field(default_factory=list)
    losses: list[tuple[int, float]] = field(default_factory=list)
    agreement: tuple[float, ...] = ()
    """Of the last steps, as lessons tell it: the mean of some twenty."""

    def found(self, tau: float) -> None:
        """The weights as they are now have that tau."""
        self.taus.append((self.step, tau))
        if tau > self.best_tau:
            self.best_tau, self.worse, self.best = tau, 0, _copied(self.weights)
        else:
            self.worse += 1


Heard = Callable[[State, Told, float], None]
"""(state, what the last step told, seconds that are left)."""


def train(
    state: State,
    lesson: Lesson,
    course: Course,
    stream: Callable[[int], Generator[Batch, None, None]],
    measure: Measure | None,
    kept: Path | None,
    heard: Heard,
    halt: Halt | None = None,
) -> State:
    """Train until the course is run or tau has stopped rising; `stream(step)` are the batches from that step on.

    With `kept`, a file, a run that was broken off goes on from where it was saved last; told to halt, it saves and
    raises Halted. A loss that is not finite raises SpecError, and what was saved stays as it was.
    """
    return _Training(state, lesson, course, measure, kept, heard, halt or Halt()).run(stream)


class _Training:
    """One run of `train`."""

    def __init__(
        self, state: State, lesson: Lesson, course: Course, measure: Measure | None, kept: Path | None, heard: Heard,
        halt: Halt,
    ) -> None:  # fmt: skip
        self._state, self._lesson, self._course, self._measure = state, lesson, course, measure
        self._kept, self._heard, self._halt = kept, heard, halt
        self._optimiser = Optimiser(state.weights, course)
        if kept is not None and kept.exists():
            _restore(kept, state, self._optimiser)
        if course.seconds is not None:
            self._course = replace(course, seconds=state.seconds + course.seconds)
        self._clock = perf_counter() - state.seconds
        self._saved, self._saving = perf_counter(), 0.0
        self._weighing = course.weighing
        self._times: deque[float] = deque(maxlen=_LATELY)

    def run(self, stream: Callable[[int], Generator[Batch, None, None]]) -> State:
        state, batches = self._state, stream(self._state.step)
        try:
            with self._halt.careful():
                while True:
                    self._rest()
                    if state.ended:
                        break
                    self._step(next(batches))
        finally:
            batches.close()
        if not state.best:
            state.best = _copied(state.weights)
        return state

    @property
    def _done(self) -> float:
        """How much of the course is behind: of its seconds, the last measurement is kept free."""
        spent = self._state.seconds + (self._weighing if self._measure else 0.0) + (self._pace if self._times else 0.0)
        seconds = self._course.seconds
        over = seconds is not None and spent >= seconds
        return 1.0 if over else self._course.done(self._state.step, self._state.seconds)

    @property
    def _pace(self) -> float:
        return sum(self._times) / len(self._times)

    def _step(self, batch: Batch) -> None:
        state, at = self._state, perf_counter()
        # What is drawn in a step is the step's own, so that a resumed run draws it too.
        torch.manual_seed(state.step)
        told = _step(
            state.weights, self._lesson, batch, self._optimiser, self._course,
            self._course.done(state.step, state.seconds),
        )  # fmt: skip
        self._times.append(perf_counter() - at)
        state.step, state.seconds = state.step + 1, perf_counter() - self._clock
        state.agreement = _blended(state.agreement, told.agreement)
        if state.step % 20 == 0 or state.step == self._course.steps:
            state.losses.append((state.step, told.loss))
        self._heard(state, told, self._left())

    def _left(self) -> float:
        """Seconds to the end of the course."""
        course, state = self._course, self._state
        lefts = []
        if course.seconds is not None:
            lefts.append(course.seconds - state.seconds)
        if course.steps is not None:
            weighings = course.measures - int(self._done * course.measures) if self._measure else 0
            lefts.append((course.steps - state.step) * self._pace + weighings * self._weighing)
        return max(0.0, min(lefts))

    def _rest(self) -> None:
        """Between steps: measure, end, save, halt."""
        state, course = self._state, self._course
        done = self._done if state.step else 0.0
        if self._measure and not state.ended and int(done * course.measures) > int(state.measured_at * course.measures):
            self._save()
            at = perf_counter()
            _weigh(state, self._measure)
            self._weighing = perf_counter() - at
            state.measured_at, state.measuring = done, state.measuring + self._weighing
            state.seconds = perf_counter() - self._clock
            self._saved = -math.inf
        state.ended = done >= 1.0 or state.worse >= course.patience
        due = perf_counter() - self._saved >= max(KEPT_EACH_S, self._saving / SAVING)
        if state.ended or due or self._halt.asked:
            self._save()
        self._halt.check()

    def _save(self) -> None:
        if self._kept is None:
            return
        at = perf_counter()
        _keep(self._kept, self._state, self._optimiser)
        self._saved = perf_counter()
        self._saving = self._saved - at


def _copied(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in weights.items()}


def _blended(before: tuple[float, ...], now: tuple[float, ...]) -> tuple[float, ...]:
    """A mean that forgets."""
    return tuple(0.95 * old + 0.05 * new for old, new in zip(before, now, strict=True)) if before else now


def _weigh(state: State, measure: Measure) -> None:
    state.found(measure({name: value.detach() for name, value in state.weights.items()}))


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

    Muon (Jordan 2024) steps along the nearest orthogonal matrix, which halves the steps that a head needs.
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
            self._parts.append(Muon(matrices, course.rate * MUON, course.decay, course.dtype))
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
    body = {item.name: getattr(state, item.name) for item in fields(state) if item.name != "weights"}
    weights = {name: value.detach() for name, value in state.weights.items()}
    whole = {**body, "weights": weights, "optimiser": optimiser.state_dict()}
    written(path, lambda scratch: torch.save(whole, scratch), kept_size(state.weights))


def kept_size(weights: Mapping[str, Tensor]) -> int:
    """Bytes of what is saved: parameters, the best of them, and what the optimiser remembers of each."""
    return sum(value.nbytes * (4 if value.requires_grad else 2) for value in weights.values())


def _restore(path: Path, state: State, optimiser: Optimiser) -> None:
    try:
        body = torch.load(path, map_location=next(iter(state.weights.values())).device, weights_only=True)
        weights, remembered = body.pop("weights"), body.pop("optimiser")
        if {*body} != {item.name for item in fields(state)} - {"weights"}:
            raise LoadError(f"{path} is of another version of forerun: delete it to begin anew")
        if {name: value.shape for name, value in weights.items()} != {n: v.shape for n, v in state.weights.items()}:
            raise LoadError(f"{path} is of another head: give another --out, or delete it to begin anew")
        if body.get("mark", "") != state.mark:
            raise LoadError(f"{path} is of other draft words or data: give another --out, or delete it to begin anew")
        with torch.no_grad():
            for name, value in weights.items():
                state.weights[name].copy_(value)
        optimiser.load_state_dict(remembered)
        for name, value in body.items():
            setattr(state, name, value)
    except (OSError, EOFError, KeyError, RuntimeError, ValueError, UnpicklingError) as error:
        raise LoadError(f"{path} cannot be read ({error}): delete it to begin anew") from error
