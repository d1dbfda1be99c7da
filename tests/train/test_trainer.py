"""The loop: a killed run goes on as if nothing had happened, nothing bad is ever kept, and the best head is."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import pytest
import torch

from forerun.core.errors import CapacityError, LoadError, SpecError
from forerun.train import trainer
from forerun.train.halting import Halt, Halted
from forerun.train.trainer import Course, State, train


@dataclass
class Told:
    loss: float
    agreement: tuple[float, ...] = ()


GOAL = torch.tensor([[1.0, -2.0], [0.5, 3.0]])


def lesson(w, batch):
    loss = ((w["a"] - GOAL) ** 2).sum() * batch + w["b"].square().sum()
    return loss, Told(float(loss.detach()))


def stream(step):
    while True:
        step += 1
        yield 1.0 + (step % 5)


def start() -> State:
    return State({"a": torch.zeros(2, 2), "b": torch.ones(3)})


def run(state, course, kept=None, measure=None, news=lambda *_: None, teach=lesson, halt=None):
    return train(state, teach, course, stream, measure, kept, news, halt)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("at", [1, 7, 19, 20, 39])
def test_323_324_a_halted_run_saves_and_ends_bit_for_bit_as_one_that_was_not(tmp_path, at):
    course = Course(steps=40, rate=0.05, measures=2)
    halt = Halt()

    def measure(w):
        halt.check()
        return float(-(w["a"] - GOAL).square().sum())

    def stop(state, told, left):
        halt.asked = state.step == at

    whole = run(start(), course, None, lambda w: float(-(w["a"] - GOAL).square().sum()))
    with pytest.raises(Halted):
        run(start(), course, tmp_path / "kept.pt", measure, stop, halt=halt)
    assert torch.load(tmp_path / "kept.pt", weights_only=True)["step"] == at
    rest = run(start(), course, tmp_path / "kept.pt", lambda w: float(-(w["a"] - GOAL).square().sum()))
    assert all(torch.equal(value, rest.weights[name]) for name, value in whole.weights.items())
    assert all(torch.equal(value, rest.best[name]) for name, value in whole.best.items())
    assert (whole.taus, whole.losses, whole.agreement) == (rest.taus, rest.losses, rest.agreement)


@pytest.mark.parametrize("at", [1, 7, 19, 30, 39])
def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path, at, monkeypatch):
    monkeypatch.setattr(trainer, "KEPT_EACH_S", 0.0)
    monkeypatch.setattr(trainer, "SAVING", math.inf)
    course = Course(steps=40, rate=0.05, measures=2)
    measure = lambda w: float(-(w["a"] - GOAL).square().sum())
    whole = run(start(), course, None, measure)

    def kill(state, told, left):
        if state.step == at:
            raise Killed

    with pytest.raises(Killed):
        run(start(), course, tmp_path / "kept.pt", measure, kill)
    rest = run(start(), course, tmp_path / "kept.pt", measure)
    for name, value in whole.weights.items():
        assert torch.equal(value, rest.weights[name]), name
    assert whole.taus == rest.taus
    assert whole.step == rest.step == 40


def test_a_loss_that_is_no_number_ends_it_and_nothing_bad_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "KEPT_EACH_S", 0.0)

    def breaks(w, batch):
        loss, told = lesson(w, batch)
        if float(w["b"].detach().sum()) < 2.9:
            told.loss = math.nan
        return loss, told

    with pytest.raises(SpecError, match="loss became nan"):
        run(start(), Course(steps=50, rate=0.05), tmp_path / "kept.pt", teach=breaks)
    kept = torch.load(tmp_path / "kept.pt", weights_only=True)
    assert all(bool(value.isfinite().all()) for value in kept["weights"].values())


def test_the_best_head_is_kept_and_patience_ends(tmp_path):
    taus = iter([1.5, 2.0, 1.9, 1.8, 1.7, 9.0])
    seen = []

    def measure(w):
        seen.append({name: value.detach().clone() for name, value in w.items()})
        return next(taus)

    state = run(start(), Course(steps=60, measures=6, patience=3), None, measure)
    assert [tau for _, tau in state.taus] == [1.5, 2.0, 1.9, 1.8, 1.7]
    assert state.step == 50
    assert state.best_tau == 2.0
    assert torch.equal(state.best["a"], seen[1]["a"])


@pytest.mark.parametrize("slow", [0.0, 0.01])
def test_321_the_time_of_training_is_held_with_measuring_in_it(slow):
    def measure(w):
        time.sleep(0.05)
        return 1.0

    def teach(w, batch):
        time.sleep(slow)
        return lesson(w, batch)

    at = time.perf_counter()
    state = run(start(), Course(seconds=0.5, measures=3), None, measure, teach=teach)
    took = time.perf_counter() - at
    assert state.ended
    assert state.step > 3
    assert 0.3 < took < 1.0
    assert state.measuring > 0.1
    assert len(state.taus) == 3


def test_321_a_resumed_course_has_the_time_that_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "KEPT_EACH_S", 0.0)
    halt = Halt()

    def stop(state, told, left):
        halt.asked = state.seconds > 0.2

    with pytest.raises(Halted):
        run(start(), Course(seconds=0.4), tmp_path / "kept.pt", news=stop, halt=halt)
    lefts = []
    state = run(start(), Course(seconds=0.2), tmp_path / "kept.pt", news=lambda state, told, left: lefts.append(left))
    assert lefts[0] <= 0.2
    assert 0.35 < state.seconds < 0.7


def test_a_disk_that_is_full_says_so(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trainer.torch, "save", full)
    with pytest.raises(CapacityError, match="disk is full"):
        run(start(), Course(steps=4, measures=1), tmp_path / "kept.pt", lambda w: 1.0)
    assert not list(tmp_path.iterdir())


def test_another_head_s_training_is_refused(tmp_path):
    run(start(), Course(steps=4, measures=1), tmp_path / "kept.pt", lambda w: 1.0)
    with pytest.raises(LoadError, match="another head"):
        run(State({"a": torch.zeros(3, 2), "b": torch.ones(3)}), Course(steps=4), tmp_path / "kept.pt")
    same_shapes = {"a": torch.zeros(2, 2), "b": torch.ones(3)}
    with pytest.raises(LoadError, match="other draft words"):
        run(State(same_shapes, mark="of other words"), Course(steps=4), tmp_path / "kept.pt")
    (tmp_path / "kept.pt").write_bytes(b"x")
    with pytest.raises(LoadError, match="cannot be read"):
        run(start(), Course(steps=4), tmp_path / "kept.pt")


def test_the_rate_rises_and_falls():
    course = Course(steps=10, warm=0.1, least=0.1)
    shares = [course.share(done / 100) for done in range(101)]
    assert shares[0] < 0.05
    assert max(shares) == pytest.approx(shares[10], abs=0.05)
    assert shares[-1] == pytest.approx(0.1, abs=1e-3)


def test_a_course_has_a_length():
    with pytest.raises(SpecError, match="steps or seconds"):
        Course()
    assert run(start(), Course(steps=3, seconds=30.0)).step == 3
