import pytest
import torch

from forerun.core.draft import Tree
from forerun.core.errors import BrokenInvariant, SpecError
from forerun.core.noise import SeededNoise
from forerun.core.params import SamplingParams
from forerun.core.rows import Rows
from forerun.core.seq import Seq, Token
from forerun.core.vocabulary import Support, shape
from forerun.core.work import Item


def rows_of(probs, prompt=(7,), tree=None, output=(), vocab=None, **params):
    seq = Seq(0, prompt, SamplingParams(seed=1, **params), 100)
    seq.extend(Token(token) for token in output)
    tree = tree or Tree.root(seq.last)
    logits = torch.tensor(probs, dtype=torch.float64).log()
    logits = logits.expand(len(tree), -1) if logits.ndim == 1 else logits
    return Rows([Item(seq, len(seq) - 1, len(seq) - 1, tree)], logits, vocab or logits.shape[1])


def test_greedy_is_a_one_hot_distribution():
    assert rows_of([0.2, 0.5, 0.3]).probs(0, 0).tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"temperature": 1.0}, [0.5, 0.3, 0.15, 0.05]),
        ({"temperature": 1.0, "top_k": 2}, [0.625, 0.375, 0, 0]),
        ({"temperature": 1.0, "top_p": 0.8}, [0.625, 0.375, 0, 0]),
        ({"temperature": 1.0, "top_p": 0.81}, [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]),
        ({"temperature": 1.0, "min_p": 0.5}, [0.625, 0.375, 0, 0]),
        ({"temperature": 1.0, "top_k": 3, "top_p": 0.6}, [0.625, 0.375, 0, 0]),
        ({"temperature": 1.0, "top_k": 1}, [1, 0, 0, 0]),
        ({"temperature": 0.5}, [0.25 / 0.365, 0.09 / 0.365, 0.0225 / 0.365, 0.0025 / 0.365]),
        ({"temperature": 1e-300}, [1, 0, 0, 0]),
    ],
)
def test_the_processed_distribution(params, expected):
    """Failure case 9, the target's side: its filters shape every row."""
    probs = rows_of([0.5, 0.3, 0.15, 0.05], **params).probs(0, 0)
    assert torch.allclose(probs, torch.tensor(expected, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("temperature", [1e-300, 1e-46, 1e-40, 1e-20])
def test_a_temperature_near_zero_leaves_the_likeliest_in_every_dtype(dtype, temperature):
    """Failure case 16: it is 0 in float32, and 0 / 0 no distribution."""
    seq = Seq(0, [1], SamplingParams(temperature=temperature, seed=1), 10)
    rows = Rows([Item(seq, 0, 0, Tree.root(1))], torch.tensor([[1.0, 3.0, 2.0, -torch.inf]]).to(dtype), 4)
    assert rows.probs(0, 0).tolist() == [0, 1, 0, 0]
    assert rows.pick(0, 0, SeededNoise([1])) == 1


def test_shapes_agree_with_transformers_on_random_rows():
    from transformers.generation.logits_process import (
        LogitsProcessorList,
        MinPLogitsWarper,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    torch.manual_seed(0)
    for temperature, k, p, min_p in [
        (0.7, 0, 0.9, 0.0),
        (1.3, 50, 1.0, 0.0),
        (1.0, 200, 0.7, 0.05),
        (2.0, 0, 0.97, 0.01),
    ]:
        row = torch.randn(3000, dtype=torch.float64) * 4
        warpers = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
        if k:
            warpers.append(TopKLogitsWarper(k))
        if p < 1:
            warpers.append(TopPLogitsWarper(p))
        if min_p:
            warpers.append(MinPLogitsWarper(min_p))
        expected = torch.softmax(warpers(None, row[None].clone())[0], -1)
        support = shape(row, SamplingParams(temperature=temperature, top_k=k, top_p=p, min_p=min_p))
        got = torch.zeros_like(row)
        got[support.ids] = support.weights
        assert torch.allclose(got, expected, atol=1e-12)


def test_penalties_agree_with_transformers_and_openai_s_formulas():
    from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor

    torch.manual_seed(0)
    row = torch.randn(50, dtype=torch.float64)
    rows = rows_of(row.exp().tolist(), prompt=(3, 4), output=(5, 5, 6), repetition_penalty=1.7)
    expected = RepetitionPenaltyLogitsProcessor(1.7)(torch.tensor([[3, 4, 5, 5, 6]]), row[None].clone())[0]
    assert torch.allclose(rows.edited(0, 0), expected)
    rows = rows_of(row.exp().tolist(), prompt=(3, 4), output=(5, 5, 6), presence_penalty=0.5, frequency_penalty=0.25)
    expected = row.clone()
    expected[5] -= 0.5 + 2 * 0.25
    expected[6] -= 0.5 + 0.25
    assert torch.allclose(rows.edited(0, 0), expected)


def test_each_node_s_history_is_its_own_path():
    tree = Tree((7, 1, 2, 1), (-1, 0, 0, 2))
    rows = rows_of([0.4, 0.3, 0.2, 0.1, 0, 0, 0, 0], tree=tree, frequency_penalty=1.0)
    raw = rows.raw(0, 0)
    for node, penalised in ((0, []), (1, [1]), (2, [2]), (3, [2, 1])):
        expected = raw.clone()
        for token in penalised:
            expected[token] -= 1.0
        assert torch.equal(rows.edited(0, node), expected)


def test_padded_ids_do_not_exist():
    """Failure case 60."""
    rows = rows_of([0.1, 0.2, 0.0, 0.7], vocab=3, temperature=1.0)
    assert rows.probs(0, 0).shape == (3,)
    assert rows.argmax(0, 0) == 1


def test_stop_tokens_are_impossible_before_the_floor():
    seq = Seq(0, [7], SamplingParams(min_tokens=2), 100, frozenset({2}))
    tree = Tree((7, 1, 1), (-1, 0, 1))
    logits = torch.tensor([0.1, 0.2, 0.7], dtype=torch.float64).log().expand(3, 3)
    rows = Rows([Item(seq, 0, 0, tree)], logits, 3)
    assert [rows.argmax(0, node) for node in range(3)] == [1, 1, 2]


def test_the_grammar_sees_the_path_and_is_not_asked_behind_the_end():
    asked = []

    def allowed(tokens):
        asked.append(list(tokens))
        return [1]

    seq = Seq(0, [7], SamplingParams(allowed=allowed), 100, frozenset({2}))
    rows = Rows([Item(seq, 0, 0, Tree((7, 1, 2), (-1, 0, 1)))], torch.zeros(3, 8), 8)
    assert [rows.argmax(0, node) for node in range(3)][:2] == [1, 1]
    assert asked == [[], [1]]


def test_a_grammar_mask_and_a_list_mean_the_same():
    mask = torch.tensor([False, True, False])
    for answer in ([1], mask, torch.tensor([1])):
        assert rows_of([0.5, 0.2, 0.3], allowed=lambda tokens, a=answer: a).argmax(0, 0) == 1


def test_nothing_left_to_draw_says_why():
    with pytest.raises(SpecError, match="no token is left"):
        rows_of([0.5, 0.5], allowed=lambda tokens: []).argmax(0, 0)


def test_logprobs_are_the_model_s_own():
    """Failure case 38: neither the acceptance nor the temperature has a part in them."""
    rows = rows_of([0.4, 0.3, 0.2, 0.1], temperature=0.5, logit_bias={3: 100})
    found = rows.logprobs(0, 0, 0, 3)
    assert found.token == pytest.approx(-0.9163, abs=1e-4)
    assert [round(value, 4) for _, value in found.top] == [-0.9163, -1.204, -1.6094]


def test_a_pick_depends_on_seed_and_position_alone():
    tree = Tree((7, 1, 2), (-1, 0, 0))
    rows = rows_of([0.25] * 4, tree=tree, temperature=1.0)
    noise = SeededNoise([5])
    assert rows.pick(0, 1, noise) == rows.pick(0, 2, noise)
    assert rows.position(0, 0) == 1
    assert rows.position(0, 1) == 2


def test_half_precision_rows_are_processed_in_float32():
    seq = Seq(0, [1], SamplingParams(temperature=1.0), 10)
    rows = Rows([Item(seq, 0, 0, Tree.root(1))], torch.zeros(1, 4, dtype=torch.bfloat16), 4)
    assert rows.probs(0, 0).dtype == torch.float32


def test_a_target_that_returns_too_few_rows_is_found_out():
    seq = Seq(0, [1], SamplingParams(), 10)
    with pytest.raises(BrokenInvariant, match="rows"):
        Rows([Item(seq, 0, 0, Tree((1, 2), (-1, 0)))], torch.zeros(1, 4), 4)


def test_the_target_s_own_argmax_is_taken_where_it_is_one():
    seq = Seq(0, [1], SamplingParams(), 10)
    items = [Item(seq, 0, 0, Tree((1, 2, 3), (-1, 0, 0)))]
    logits = torch.tensor([[0.0, 1.0, 2.0, 9.0]] * 3)
    rows = Rows(items, logits, 3, first_best=[1, 3, 0])  # 1 and 0 are lies, and are believed; 3 is padding
    assert [rows.argmax(0, node) for node in range(3)] == [1, 2, 0]
    seq = Seq(0, [1], SamplingParams(logit_bias={0: 100}), 10)
    assert Rows([Item(seq, 0, 0, Tree.root(1))], logits[:1], 3, first_best=[1]).argmax(0, 0) == 0  # edited


@pytest.mark.parametrize("first_best", [None, [-1]])
def test_logits_that_are_no_numbers_are_a_fault(first_best):
    logits = torch.tensor([[0.0, float("nan"), 1.0]])
    for params in (SamplingParams(), SamplingParams(temperature=1.0), SamplingParams(temperature=1.0, top_p=0.5)):
        rows = Rows([Item(Seq(0, [1], params, 10), 0, 0, Tree.root(1))], logits, 3, first_best=first_best)
        with pytest.raises(BrokenInvariant, match="logits"):
            rows.pick(0, 0, SeededNoise([1]))


def test_rows_are_shaped_by_the_vocabulary_they_are_given():
    class Last:
        def shape(self, row, params):
            return Support(torch.tensor([row.shape[0] - 1]), torch.ones(1))

        def race(self, weights, key, ids=None):
            return 0

    vocabulary = Last()
    seq = Seq(0, [1], SamplingParams(temperature=1.0), 10)
    rows = Rows([Item(seq, 0, 0, Tree.root(1))], torch.zeros(1, 5), 5, vocabulary=vocabulary)
    assert rows.pick(0, 0, SeededNoise([1], vocabulary.race)) == 4


def test_of_equals_at_a_nucleus_s_border_the_smaller_ids_stay():
    row = torch.zeros(5000)
    row[[7, 3000]] = 1.0
    for params, kept in (
        (SamplingParams(temperature=1.0, top_k=1), [7]),
        (SamplingParams(temperature=1.0, top_k=5), [0, 1, 2, 7, 3000]),
        (SamplingParams(temperature=1.0, top_p=0.0011), [0, 7, 3000]),
    ):
        assert shape(row, params).ids.tolist() == kept
