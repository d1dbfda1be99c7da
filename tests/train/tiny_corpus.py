"""A tiny target and the corpora that it makes, for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

from forerun.train.conversation import Manner
from forerun.train.corpus import Corpus
from forerun.train.domains import Mix
from forerun.train.gather import SelfMade, facts_of, gather, target_for
from forerun.train.intake import Budget

MIX = "math,chat"
MANNER = Manner(prompt_tokens=24, answer_tokens=20, again=0.5)
TAPS = (0, 1, 2)
ENDS = {"eos_token_id": [*range(192, 256), 259]}
"""Of a tiny model whose turns end soon: with one end in 264 words most conversations would be given up."""


def tiny_target(folder: Path, width: int = 8):
    return target_for(str(folder), width, weights="auto", runtime="torch", max_len=200)


def begun(folder: Path, base, taps=TAPS) -> Corpus:
    """The last tap must be the number of layers, whose states say what the target says."""
    return Corpus.begin(folder, facts_of(base, taps, 3, SelfMade(Mix.parse(MIX), MIX), MANNER))


def fill(corpus: Corpus, base, tokens: int, width: int = 8, avoid=None, told=lambda news: None, halt=None) -> Corpus:
    source = SelfMade(Mix.parse(MIX), MIX)
    gather(base, corpus, source, MANNER, Budget(tokens), told, halt, avoid, width)
    return Corpus(corpus.folder)
