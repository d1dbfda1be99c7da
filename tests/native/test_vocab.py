"""The compiled vocabulary end against the plain one: same tokens, same weights, same draws."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from forerun.core import noise, vocabulary
from forerun.core.errors import BrokenInvariant
from forerun.core.noise import SeededNoise, hashed
from forerun.core.params import SamplingParams
from forerun.native import ext
from forerun.testing.engines import toy_engine
from forerun.testing.toy import table_law

pytestmark = pytest.mark.skipif(ext.extension() is None, reason=f"no extension: {ext.why_not()}")

INF = float("inf")
EDGE = 2e-6  # of probability: what two ways to add may differ by where a nucleus ends


@pytest.fixture(scope="module")
def native():
    from forerun.native.vocab import NativeVocabulary

    return NativeVocabulary()


def dense(support, size):
    probs = torch.zeros(size, dtype=torch.float64)
    ids = torch.arange(size) if support.ids is None else support.ids
    probs[ids] = support.weights.double()
    return probs


def exact(row, params):
    """The distribution in float64, where sums round at 1e-16."""
    return dense(vocabulary.shape(row.double(), params), row.shape[0])


def ends_alike(row, params):
    """Whether the nucleus of the row is the same if top_p or min_p is moved by a rounding error."""
    moves = ((1 - EDGE, 1 - EDGE), (1 + EDGE, 1 + EDGE))
    supports = []
    for p, m in moves:
        moved = SamplingParams(
            temperature=params.temperature,
            top_k=params.top_k,
            top_p=min(params.top_p * p, 1.0) if params.top_p < 1 else 1.0,
            min_p=min(params.min_p * m, 1.0),
        )
        supports.append(exact(row, moved) > 0)
    return torch.equal(*supports)


def check(native, row, params):
    got = native.shape(row, params)
    assert got.weights.dtype == torch.float32
    assert float(got.weights.double().sum()) == pytest.approx(1.0, abs=1e-5)
    if got.ids is not None:
        assert got.ids.dtype == torch.int64
        assert got.ids.shape == got.weights.shape
        assert bool((got.ids[1:] > got.ids[:-1]).all())
        assert bool((got.weights > 0).all())
    assert (got.ids is None) == (vocabulary.shape(row, params).ids is None)
    if ends_alike(row, params):
        wanted, found = exact(row, params), dense(got, row.shape[0])
        assert torch.equal(found > 1e-30, wanted > 1e-30)
        assert torch.allclose(found, wanted, rtol=2e-5, atol=1e-9)


def some_row(rng, generator):
    size = rng.choice([1, 2, 3, 15, 63, 64, 65, 1000, 1023, 1024, 1025, 3000, 5000])
    row = torch.randn(size, generator=generator) * rng.choice([0.01, 1.0, 3.0, 10.0, 100.0])
    if rng.random() < 0.3:
        row = row.round()  # ties
    if rng.random() < 0.3:
        row[torch.rand(size, generator=generator) < rng.choice([0.1, 0.9])] = -INF
        row[rng.randrange(size)] = 1.5
    return row


def some_params(rng, size):
    return SamplingParams(
        temperature=rng.choice([1e-40, 0.01, 0.3, 0.7, 1.0, 1.5, 5.0, 100.0]),
        top_k=rng.choice([0, 0, 1, 2, 5, 50, 600, max(1, size - 1), size, size + 7]),
        top_p=rng.choice([1.0, 1.0, 1e-9, 0.1, 0.5, 0.9, 0.95, 0.999, 1 - 1e-12]),
        min_p=rng.choice([0.0, 0.0, 1e-6, 0.05, 0.5, 1.0]),
    )


@pytest.mark.parametrize("seed", range(8))
def test_shapes_are_the_plain_ones_on_random_rows(native, seed):
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    for _ in range(120):
        row = some_row(rng, generator)
        params = some_params(rng, row.shape[0])
        try:
            check(native, row, params)
        except AssertionError:
            raise AssertionError(f"row of {row.shape[0]}, {params}") from None


def peaked(size=49_152):
    torch.manual_seed(0)
    row = torch.randn(size) * 3
    row[[777, 40_000, 5]] = torch.tensor([19.0, 18.0, 17.5])
    return row


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(torch.zeros(3000), id="all equal"),
        pytest.param(torch.full((3000,), -INF).index_fill(0, torch.tensor([2999]), -50.0), id="one finite"),
        pytest.param(3e38 * torch.linspace(-1, 1, 3000), id="all of float32"),
        pytest.param(torch.linspace(0, -1e-6, 3000), id="nearly equal"),
        pytest.param(torch.linspace(-1000, 0, 3000), id="steep"),
        pytest.param(torch.tensor([2.0, 1.0] * 1500), id="many at the border"),
        pytest.param(torch.cat([torch.full((2900,), -1.0), torch.tensor([5.0] * 100)]), id="equals at the end"),
        pytest.param(peaked(), id="peaked"),
        pytest.param(torch.randn(49_152, generator=torch.Generator().manual_seed(1)), id="flat"),
        pytest.param(torch.tensor([0.0, -0.0, -INF]), id="zeros of both signs"),
        pytest.param(torch.tensor([-0.0] + [0.0] * 2000), id="many zeros of both signs"),
    ],
)
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"top_p": 0.9},
        {"top_p": 1e-6},
        {"top_p": 0.45},
        {"top_k": 1},
        {"top_k": 777},
        {"top_k": 100, "top_p": 0.5},
        {"min_p": 1.0},
        {"min_p": 0.1, "top_p": 0.99},
        {"temperature": 1e-300, "top_p": 0.9},
        {"temperature": 0.05, "top_p": 0.999},
        {"temperature": 100.0, "top_p": 0.9, "top_k": 2000},
    ],
)
def test_shapes_of_awkward_rows(native, row, params):
    check(native, row, SamplingParams(**{"temperature": 1.0, **params}))


@pytest.mark.parametrize("shape", [vocabulary.shape, "native"])
def test_of_equals_at_the_border_the_smaller_ids_stay(native, shape):
    shape = native.shape if shape == "native" else shape
    row = torch.tensor([1.0, 3.0, 2.0, 2.0, 2.0, 2.0, 3.0, 0.0])
    assert shape(row, SamplingParams(temperature=1.0, top_k=4)).ids.tolist() == [1, 2, 3, 6]
    assert shape(row, SamplingParams(temperature=1.0, top_k=1)).ids.tolist() == [1]
    assert shape(row, SamplingParams(temperature=1.0, top_p=0.1)).ids.tolist() == [1]
    share = float(torch.softmax(row, -1)[[1, 6, 2]].sum()) + 0.01  # a fourth is needed, any of three would do
    assert shape(row, SamplingParams(temperature=1.0, top_p=share)).ids.tolist() == [1, 2, 3, 6]
    wide = torch.zeros(5000)
    assert shape(wide, SamplingParams(temperature=1.0, top_k=300)).ids.tolist() == list(range(300))
    assert shape(wide, SamplingParams(temperature=1.0, top_p=0.2 - 1e-5)).ids.tolist() == list(range(1000))


@pytest.mark.parametrize("shape", [vocabulary.shape, "native"])
@pytest.mark.parametrize("row", [[1.0, float("nan")], [float("nan")] * 2, [INF, 0.0], [-INF, -INF]])
@pytest.mark.parametrize("params", [{}, {"top_p": 0.5}, {"top_k": 1}, {"min_p": 0.5}])
def test_rows_that_are_no_distribution_are_a_fault(native, shape, row, params):
    shape = native.shape if shape == "native" else shape
    with pytest.raises(BrokenInvariant, match="logits"):
        shape(torch.tensor(row), SamplingParams(temperature=1.0, **params))


def test_a_row_of_a_wider_matrix_and_one_of_another_dtype(native):
    matrix = torch.randn(4, 300, generator=torch.Generator().manual_seed(3))
    params = SamplingParams(temperature=0.8, top_p=0.9)
    for row in (matrix[2, :250], matrix[:, 7], matrix[1].double()):
        got, wanted = native.shape(row, params), vocabulary.shape(row, params)
        assert got.ids.tolist() == wanted.ids.tolist()
        assert got.weights.dtype == row.dtype
        assert torch.allclose(got.weights, wanted.weights, atol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 30, 63, 64, 65, 130, 3000])
def test_the_race_has_the_plain_winner(native, size):
    generator = torch.Generator().manual_seed(size)
    for i in range(500):
        weights = torch.softmax(torch.randn(size, generator=generator) * 4, -1)
        if i % 3 == 0:
            weights[torch.rand(size, generator=generator) < 0.5] = 0.0
            weights[i % size] = 0.1
        key = hashed(i, (0, size))
        ids = torch.arange(size) * 3 + i if i % 2 else None
        assert native.race(weights, key, ids) == noise.race(weights, key, ids)


def test_the_race_over_the_whole_vocabulary_has_the_plain_winner(native):
    weights = torch.softmax(peaked() * 0.6, -1)
    flat = torch.ones(49_152)
    for i in range(40):
        key = hashed(i, (0, 1))
        assert native.race(weights, key) == noise.race(weights, key)
        assert native.race(flat, key) == noise.race(flat, key)


@pytest.mark.parametrize("size", [2, 300, 5000])
@pytest.mark.parametrize("weight", [0.0, float("nan"), INF, -1.0])
def test_no_mass_is_a_fault_not_a_token(native, size, weight):
    weights = torch.zeros(size)
    weights[size // 2] = weight
    if not weight <= 0.0:
        weights[0] = 1.0
    for race in (native.race, noise.race):
        with pytest.raises(BrokenInvariant, match="cannot draw"):
            race(weights, 12345)


def test_seeded_noise_races_natively_to_the_same_text(native):
    weights = torch.softmax(peaked(), -1)
    plain, fast = SeededNoise([7]), SeededNoise([7], native.race)
    assert [plain.pick(0, (0, i), weights) for i in range(30)] == [fast.pick(0, (0, i), weights) for i in range(30)]


def test_the_engine_s_draws_are_made_by_its_vocabulary(native):
    raced = []

    class Counting:
        shape = native.shape

        def race(self, weights, key, ids=None):
            raced.append(key)
            return native.race(weights, key, ids)

    law = table_law(40, seed=3)
    texts = []
    for how in ({}, {"vocabulary": Counting()}):
        engine = toy_engine(lambda tokens: law(tokens).float(), vocab_size=40, eos_ids=())
        engine.parts = replace(engine.parts, **how)
        texts.append(engine.generate([1], max_tokens=30, temperature=1.0, top_p=0.9, seed=5).token_ids)
    assert texts[0] == texts[1]
    assert len(raced) == 30


@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 1023, 1024, 1025, 5000])
def test_argmax_is_the_first_best(size):
    rng = np.random.default_rng(size)
    logits = rng.normal(size=(20, size)).astype(np.float32)
    logits[10:] = logits[10:].round()  # ties
    logits[19] = -INF
    assert ext.required().argmax(logits) == logits.argmax(-1).tolist()
    logits[3, size // 2] = np.nan
    logits[4, -1] = -np.nan
    assert ext.required().argmax(logits)[2:6] == [*logits[2:3].argmax(-1), -1, -1, logits[5].argmax()]


def test_argmax_of_strided_rows_and_of_none():
    logits = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert ext.required().argmax(logits[::2, :3]) == [2, 2]
    assert ext.required().argmax(np.empty((0, 7), np.float32)) == []
    with pytest.raises(ValueError, match="one after another"):
        ext.required().argmax(logits.T)


def test_ids_and_weights_of_different_number_are_refused():
    with pytest.raises(ValueError, match="3 weights and 2 ids"):
        ext.required().race(np.ones(3, np.float32), np.arange(2), 1)


@pytest.mark.parametrize("size", [1, 2, 64, 1023, 1025, 5000])
@pytest.mark.parametrize("count", [1, 4, 10, 70])
@pytest.mark.parametrize("grid", [False, True], ids=["distinct", "ties"])
def test_the_likeliest_are_the_plain_ones(native, size, count, grid):
    row = torch.randn(size, generator=torch.Generator().manual_seed(size)) * 3
    if grid:
        row = row.round()
    ids, logs = native.likeliest(row, count)
    want_ids, want_logs = vocabulary.likeliest(row, count)
    assert ids == want_ids
    assert len(ids) == min(size, count)
    assert logs == pytest.approx(torch.log_softmax(row.double(), -1)[ids].tolist(), abs=2e-6)
    assert logs == pytest.approx(want_logs, abs=1e-5)


def test_the_likeliest_of_a_masked_row_are_those_that_are_left(native):
    row = torch.tensor([-INF, 2.0, -INF, 1.0])
    for likeliest in (native.likeliest, vocabulary.likeliest):
        ids, logs = likeliest(row, 3)
        assert ids == [1, 3]
        assert sum(np.exp(logs)) == pytest.approx(1.0)


@pytest.mark.parametrize("row", [[1.0, float("nan")], [INF, 0.0], [-INF, -INF]])
def test_rows_without_a_likeliest_are_a_fault(native, row):
    for likeliest in (native.likeliest, vocabulary.likeliest):
        with pytest.raises(BrokenInvariant):
            likeliest(torch.tensor(row), 1)
