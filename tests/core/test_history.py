import random
from collections import Counter

import torch

from forerun.core.history import History
from forerun.core.params import SamplingParams
from forerun.core.rows import edit
from forerun.core.seq import Seq, Token

V = 20


def test_it_says_what_counting_says_however_the_text_grew():
    rng = random.Random(0)
    tokens = [rng.randrange(V) for _ in range(6)]
    history = History(tokens, 6, torch.zeros(V))
    for _ in range(30):
        path = [rng.randrange(V) for _ in range(rng.randrange(4))]
        seen, counts = history.after(path)
        expected = Counter([*tokens[6:], *path])
        assert counts.tolist() == [expected[token] for token in range(V)]
        assert seen.tolist() == [token in {*tokens, *path} for token in range(V)]
        tokens += [rng.randrange(V) for _ in range(rng.randrange(3))]


def test_ids_without_a_row_are_left_out():
    seen, counts = History([1, 99], 1, torch.zeros(V)).after([50, 2])
    assert seen.nonzero().flatten().tolist() == [1, 2]
    assert counts.sum() == 1


class Read(list):
    """Tokens that know how many of them were looked at."""

    count = 0

    def __getitem__(self, at):
        found = super().__getitem__(at)
        self.count += len(found) if isinstance(at, slice) else 1
        return found

    def __iter__(self):
        self.count += len(self)
        return super().__iter__()


def test_a_row_costs_the_same_however_long_the_text():
    params = SamplingParams(repetition_penalty=1.2, frequency_penalty=0.1)
    seq = Seq(0, range(1000), params, 1 << 20)
    seq.tokens = Read(seq.tokens)
    row = torch.zeros(200)
    edit(row.clone(), seq, [1])
    seq.extend(Token(i) for i in range(1000))
    edit(row.clone(), seq, [1])
    before = seq.tokens.count
    assert before >= 2000
    for i in range(50):
        seq.extend([Token(i)])
        edit(row.clone(), seq, [1])
    assert seq.tokens.count - before <= 2 * 50, "what came since, not all of it again"
