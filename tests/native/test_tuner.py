"""How many threads a forward runs on, with neighbours whose cost is written down: no clock is read here."""

import random

import pytest

from forerun.native.tuner import Forwards, ThreadTuner, steps

ALONE = {2: (3.1, 3.1), 1: (4.2, 4.2)}
"""Milliseconds a forward by threads: where nothing waits, and where a thread waits for its core."""
BUSY = {2: (3.1, 22.0), 1: (4.0, 4.0)}
TWO = {2: (20.0, 60.0), 1: (5.0, 8.0)}


def served(tuner, scenes, kind="decode", most=2, seed=0):
    """Run forwards through scenes of (costs, count); the time of each scene."""
    draw, times = random.Random(seed), []
    for costs, count in scenes:
        spent = 0.0
        for _ in range(count):
            quick, stalled = costs[tuner.choose(kind, most)]
            took = draw.choices((quick, stalled), (0.65, 0.35))[0] * draw.uniform(0.97, 1.03)
            tuner.tell(took)
            spent += took
        times.append(spent)
    return times


def best(costs, count):
    return count * min(0.65 * quick + 0.35 * stalled for quick, stalled in costs.values())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("costs", "over"), [(ALONE, 1.03), (BUSY, 1.1), (TWO, 1.15)])
def test_250_the_time_is_near_that_of_the_best_number_of_threads(costs, over, seed):
    [spent] = served(ThreadTuner(), [(costs, 2000)], seed=seed)
    assert spent <= over * best(costs, 2000)


@pytest.mark.parametrize("seed", range(5))
def test_250_neighbours_come_and_go(seed):
    tuner = ThreadTuner()
    scenes = [(ALONE, 500), (BUSY, 1500), (ALONE, 3000), (TWO, 1500), (ALONE, 5000)]
    for (costs, count), spent in zip(scenes, served(tuner, scenes, seed=seed), strict=True):
        assert spent <= 1.25 * best(costs, count)
    assert served(tuner, [(ALONE, 1000)], seed=seed)[0] <= 1.03 * best(ALONE, 1000)


def test_250_one_stall_is_soon_forgotten():
    tuner = ThreadTuner()
    served(tuner, [(ALONE, 200)])
    tuner.choose("decode", 2)
    tuner.tell(90.0)
    assert served(tuner, [(ALONE, 500)])[0] <= 1.05 * best(ALONE, 500)


QUIET = {2: (3.0, 3.0), 1: (4.6, 4.6)}


@pytest.mark.parametrize("seed", range(5))
def test_250_where_nothing_stalls_looks_cost_next_to_nothing(seed):
    [spent] = served(ThreadTuner(), [(QUIET, 1000)], seed=seed)
    assert spent <= 1.01 * best(QUIET, 1000)


@pytest.mark.parametrize("seed", range(20))
def test_250_stalls_of_a_moment_cost_little_more_than_themselves(seed):
    """Now and then a few forwards take long on any number of threads, and a look may be among them."""
    tuner, draw, spent, least = ThreadTuner(), random.Random(seed), 0.0, 0.0
    for _ in range(2000):
        quick = QUIET[tuner.choose("decode", 2)][0] * draw.uniform(0.97, 1.03)
        stall = draw.uniform(5.0, 40.0) if draw.random() < 0.02 else 0.0
        tuner.tell(quick + stall)
        spent, least = spent + quick + stall, least + QUIET[2][0] + stall
    assert spent <= 1.03 * least


def test_250_a_kind_that_is_new_begins_with_what_the_others_found():
    tuner = ThreadTuner()
    served(tuner, [(TWO, 100)])
    assert tuner.choose("prompt", 2) == 1


def test_250_kinds_that_take_turns_follow_one_another_at_any_moment():
    """A number of threads that a kind has no time of yet is one to time first."""
    draw, costs = random.Random(0), (ALONE, BUSY, TWO)
    for seed in range(40):
        tuner = ThreadTuner()
        for _ in range(60):
            scene = draw.choice(costs)
            served(tuner, [(scene, draw.randrange(1, 12))], kind=draw.randrange(4), seed=seed)


def test_250_fewer_cores_than_before_are_kept_to():
    tuner = ThreadTuner()
    served(tuner, [({2: (1, 1), 1: (2, 2)}, 50)])
    assert tuner.choose("decode", 1) == 1
    tuner.tell(2.0)


@pytest.mark.parametrize(
    ("most", "counts"), [(1, (1,)), (2, (1, 2)), (3, (1, 2, 3)), (4, (1, 2, 3, 4)), (16, (1, 2, 4, 8, 15, 16))]
)
def test_250_steps_are_halves_and_one_less(most, counts):
    assert steps(most) == counts


@pytest.mark.parametrize("taken", [0, 1, 8])
def test_250_many_cores(taken):
    """Sixteen cores of which some are taken: as many threads as are free, as near as the steps are."""
    costs = {n: (1 / n + 0.01 + (2.0 if n > 16 - taken else 0.0),) * 2 for n in steps(16)}
    first, later = served(ThreadTuner(), [(costs, 200), (costs, 3000)], most=16)
    assert first <= 5 * best(costs, 200)
    assert later <= 1.05 * best(costs, 3000)


class Program:
    """Takes the time that the number of threads costs, on a clock of its own."""

    def __init__(self):
        self.now, self.ran = 0.0, []

    def run(self, memory, tokens, items, features=None, threads=0):
        self.ran.append(threads)
        self.now += {0: 1.0, 1: 1.0, 2: 3.0}[threads] * len(tokens)
        return threads


@pytest.mark.parametrize(("most", "fixed"), [(2, False), (2, True), (1, False)])
def test_250_a_number_that_was_set_stays(most, fixed, monkeypatch):
    monkeypatch.setattr("forerun.native.ext.threads", lambda: most, raising=False)
    monkeypatch.setattr("forerun.native.ext.threads_set", lambda: fixed)
    program = Program()
    forwards = Forwards(lambda: program.now)
    for _ in range(200):
        forwards.run(program, None, [5], [])
    if fixed or most == 1:
        assert set(program.ran) == {0}  # all that there are
    else:
        assert program.ran.count(1) > 150
