"""A drafter that wants hidden states is shown every token's, whatever is shared, preempted or read in pieces."""

import dataclasses

import pytest
import torch

import forerun
from forerun.control.fixed import Fixed
from forerun.core.errors import SpecError
from forerun.core.plan import Plan
from forerun.testing.engines import toy_engine
from forerun.testing.scripted import ScriptedDrafter, always
from forerun.testing.toy import ToyTarget, table_law
from forerun.verify import Auto


class Tapped(ScriptedDrafter):
    """Keeps the hidden states of what stands of each open sequence, one a token that the target has read."""

    taps = (0, 2)

    def __init__(self):
        super().__init__(always([106, 106]), "tapped")
        self.seen = {}
        self.ended = []

    def begin(self, seq):
        super().begin(seq)
        self.seen[seq] = []

    def read(self, rows):
        row = 0
        for item in rows.items:
            count = len(item.certain)
            self.seen[item.seq] += rows.hidden[row : row + count]
            row += count + len(item.nodes)
        assert row == len(rows.hidden)

    def accept(self, seqs, draft, rows, verdict):
        row = 0
        for item in rows.items[: len(seqs)]:
            row += len(item.certain)
            path = verdict.paths[seqs.index(item.seq)]
            self.seen[item.seq] += [rows.hidden[row + node] for node in (0, *path)]
            row += len(item.nodes)

    def end(self, seq):
        super().end(seq)
        states = self.seen.pop(seq)
        if seq.finished:
            self.ended.append((seq, torch.stack(states)))


@pytest.mark.parametrize("runtime", ["torch", "hf"])
@pytest.mark.parametrize("options", [{}, {"chunk": 7}, {"max_len": 64, "kv_tokens": 96}])
def test_every_token_s_hidden_state_is_seen_once(models, runtime, options):
    from forerun.assemble import load

    engine = load(str(models["folder"]), runtime=runtime, **options)
    drafter = Tapped()
    engine = forerun.Engine(
        dataclasses.replace(engine.parts, drafter=drafter, verify=Auto()),
        Fixed(Plan(2)),
        chunk=options.get("chunk", 64),
    )
    prompts = [list(range(97, 117)), [*range(97, 117), 97], [97, 98] * 9]
    for _ in range(2):  # the second time everything could be shared
        results = engine.generate_batch(prompts, max_tokens=20, n=2, temperature=0.5, seed=1)
        assert all(choice.stats.reused == 0 for result in results for choice in result.choices)
    told = {}
    for seq, states in drafter.ended:
        assert len(states) in (len(seq) - 1, len(seq))  # the last token is held if it was drafted
        known = told.setdefault(tuple(seq.tokens[:18]), states[:18])
        torch.testing.assert_close(states[:18], known, atol=1e-4, rtol=1e-4)


def test_taps_that_the_target_has_not_are_refused_before_anything_runs(models):
    class TooDeep(Tapped):
        taps = (9,)

    engine = forerun.load(str(models["folder"]))
    with pytest.raises(SpecError, match="9"):
        forerun.Engine(dataclasses.replace(engine.parts, drafter=TooDeep()), Fixed(Plan(2)))
    with pytest.raises(SpecError, match="toy"):
        toy_engine(ToyTarget(table_law(8, 1), 8), Tapped())
