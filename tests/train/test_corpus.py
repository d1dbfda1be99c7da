"""A corpus on disk: whole shards or none, resumed where it stopped, and the same conversation for the same number."""

from __future__ import annotations

import errno
import json

import pytest
import torch
from tiny_corpus import MANNER, MIX, TAPS, begun, fill, tiny_target

from forerun.core.errors import CapacityError, LoadError, SpecError
from forerun.core.params import SamplingParams
from forerun.core.seq import Seq
from forerun.core.work import Item
from forerun.native import ext
from forerun.train import corpus as corpus_module
from forerun.train.corpus import Corpus, Facts
from forerun.train.domains import Mix
from forerun.train.gather import SelfMade, gather, target_for
from forerun.train.halting import Halt, Halted
from forerun.train.intake import Budget
from forerun.train.overlap import Overlap
from forerun.train.sample import Sample


def facts(**changes):
    values = {
        "model": "t", "fingerprint": "f", "vocab_size": 30, "hidden_size": 4, "layers": 2, "taps": (1, 2), "seed": 0,
        "asked": "chat", "manner": {},
    }  # fmt: skip
    return Facts(**{**values, **changes})


def sample(number, length=6):
    tokens = torch.arange(length, dtype=torch.int32) + number
    return Sample(number, "chat", True, tokens, tokens % 2 == 0, torch.full((length - 1, 8), float(number)).bfloat16())


def contents(corpus):
    return [(place.number, place.prompt, corpus.load(place).tokens.tolist()) for place in corpus]


def test_samples_come_back(tmp_path):
    corpus = Corpus.begin(tmp_path, facts())
    corpus.add([sample(3), sample(1, 9)], ["three", "one"], {0, 1, 2, 3})
    corpus.add([sample(5)], ["five"], {0, 1, 2, 3, 4, 5})
    corpus.keep(6, (), whole=True)
    found = Corpus(tmp_path)
    assert [place.number for place in found] == [1, 3, 5]
    assert found.ended == {0, 1, 2, 3, 4, 5}
    assert (found.tokens, found.learnt) == (21, 10)
    assert corpus.places == found.places
    for place in found:
        want, got = sample(place.number, place.length), found.load(place)
        for field in ("tokens", "answered", "states"):
            assert torch.equal(getattr(want, field), getattr(got, field))


def test_other_facts_are_refused(tmp_path):
    Corpus.begin(tmp_path, facts())
    Corpus.begin(tmp_path, facts())
    with pytest.raises(SpecError, match="seed 0, this run would make one with 7"):
        Corpus.begin(tmp_path, facts(seed=7))


def test_corpora_of_one_target_join(tmp_path):
    a, b = Corpus.begin(tmp_path / "a", facts()), Corpus.begin(tmp_path / "b", facts(asked="math"))
    a.add([sample(1)], ["x"], {1})
    b.add([sample(1)], ["y"], {1})
    for one in (a, b):
        one.keep(2, (), whole=True)
    a.join(Corpus(tmp_path / "b"))
    assert [place.prompt for place in a] == ["x", "y"]
    assert a.load(a.places[1]).tokens.tolist() == sample(1).tokens.tolist()
    with pytest.raises(SpecError, match="another target"):
        a.join(Corpus.begin(tmp_path / "c", facts(taps=(0, 2))))


def test_a_full_disk_is_said_and_costs_nothing(tmp_path, monkeypatch):
    corpus = Corpus.begin(tmp_path, facts())
    corpus.add([sample(1)], ["x"], {1})

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(corpus_module, "save_file", full)
    with pytest.raises(CapacityError, match=r"disk is full.*goes on from what was saved"):
        corpus.add([sample(2)], ["y"], {1, 2})
    monkeypatch.undo()
    found = Corpus(tmp_path)
    assert len(found.found) == 1
    assert not list(tmp_path.glob("*.part"))


def test_damage_is_named(tmp_path):
    with pytest.raises(LoadError, match=r"corpus.json is missing"):
        Corpus(tmp_path)
    Corpus.begin(tmp_path, facts()).add([sample(1)], ["x"], {1})
    shard = next(tmp_path.glob("shard-*"))
    shard.write_bytes(shard.read_bytes()[:50])
    with pytest.raises(LoadError, match=r"shard-00000.*damaged"):
        Corpus(tmp_path)
    (tmp_path / "corpus.json").write_text("[]")
    with pytest.raises(LoadError, match=r"corpus\.json"):
        Corpus(tmp_path)


def test_what_the_target_said_and_thought(corpus, tiny_folder):
    """States are those of the target's own forward over the same tokens, and answers are where they are said to be."""
    assert len(corpus) > 5
    assert any(not place.greedy for place in corpus)
    target = tiny_target(tiny_folder).target
    for place in list(corpus)[:6]:
        got = corpus.load(place)
        ids = got.tokens.tolist()
        seq = Seq(place.number, ids, SamplingParams(), 512)
        target.begin(seq)
        target.reserve(seq, len(ids))
        rows = target.score([Item(seq, 0, len(ids) - 1)], taps=corpus.facts.taps)
        torch.testing.assert_close(got.states.float(), rows.hidden, atol=0.05, rtol=0.02)
        target.release(seq)
        assert got.learnt == place.learnt > 0
        assert not got.answered[0]


def test_the_same_number_gives_the_same_conversation(corpus, tiny_folder, tmp_path):
    base = tiny_target(tiny_folder, 3)
    again = fill(Corpus.begin(tmp_path, corpus.facts), base, 500, width=3)
    by_number = {place.number: place for place in corpus}
    shared = [place for place in again if place.number in by_number]
    assert len(shared) > 3
    for place in shared:
        assert torch.equal(again.load(place).tokens, corpus.load(by_number[place.number]).tokens)
        assert place.prompt == by_number[place.number].prompt


def test_a_corpus_goes_on_where_it_stopped(corpus, tiny_folder, tmp_path, monkeypatch):
    import forerun.train.gather as gather_module

    monkeypatch.setattr(gather_module, "SHARD_TOKENS", 200)
    base = tiny_target(tiny_folder)
    first = fill(Corpus.begin(tmp_path, corpus.facts), base, 150)
    before = {place.number for place in first}
    second = fill(Corpus(tmp_path), base, 300)
    numbers = [place.number for place in second]
    assert before < set(numbers)
    assert contents(second) == contents(corpus)[: len(second)]


def test_what_an_evaluation_set_holds_is_left_out(corpus, tiny_folder, tmp_path):
    base = tiny_target(tiny_folder)
    texts = [base.words.decode(corpus.load(place).tokens.tolist()) for place in corpus]
    told = max(texts, key=lambda text: len(text.split()))
    words = Overlap([told], run=2)
    assert told in words
    assert "entirely different words" not in words
    found = fill(begun(tmp_path, base), base, 300, avoid=words)
    kept = [base.words.decode(found.load(place).tokens.tolist()) for place in found]
    assert not any(text in words for text in kept)


def test_a_metadata_file_is_json(corpus):
    said = json.loads((corpus.folder / "corpus.json").read_text())
    assert said["taps"] == list(TAPS)
    assert corpus.facts.token_bytes == 2 * 3 * 32 + 5


@pytest.mark.skipif(ext.extension() is None, reason="the native extension was not built")
def test_what_a_conversation_goes_on_from_is_not_read_again(tiny_folder, tmp_path):
    """Answers go on from prompts that the target wrote, and further turns from both: the same corpus, fewer tokens."""
    made, read = {}, {}
    for reuse in (True, False):
        base = target_for(str(tiny_folder), 8, max_len=200, reuse=reuse)
        fed, score = [], base.target.score

        def counted(work, keep=False, taps=(), fed=fed, score=score):
            fed.append(sum(item.stop - item.start + item.fresh for item in work))
            return score(work, keep, taps)

        base.target.score = counted
        made[reuse] = fill(begun(tmp_path / str(reuse), base), base, 1200)
        read[reuse] = sum(fed)
    assert len(made[True]) == len(made[False]) > 10
    for one, other in zip(made[True], made[False], strict=True):
        a, b = made[True].load(one), made[False].load(other)
        assert torch.equal(a.tokens, b.tokens)
        assert torch.equal(a.states, b.states)
    assert read[True] < read[False]


@pytest.mark.parametrize("tokens", [1, 60, 200])
def test_321_as_many_tokens_as_asked_for_up_to_a_conversation(tokens, corpus, tiny_folder, tmp_path):
    """However many run at a time: the conversations with the lowest numbers are taken, no other is on the disk."""
    found = fill(Corpus.begin(tmp_path, corpus.facts), tiny_target(tiny_folder), tokens)
    *rest, last = list(found)
    assert found.learnt >= tokens > sum(place.learnt for place in rest)
    assert contents(found) == contents(corpus)[: len(found)]
    assert [place.number for place in found] == sorted(place.number for place in found.found)
    assert last.learnt <= 200


@pytest.mark.parametrize("steps", [12, 60])
def test_323_246_what_has_ended_is_saved_and_gone_on_with(steps, corpus, tiny_folder, tmp_path):
    """Halted at whatever step, and again: the corpus is that of a run that was not."""
    base, found = tiny_target(tiny_folder), Corpus.begin(tmp_path, corpus.facts)
    for _ in range(2):
        halt, left = Halt(), [steps]

        def told(news, halt=halt, left=left):
            left[0] -= 1
            halt.asked = left[0] <= 0

        with pytest.raises(Halted):
            fill(found, base, 300, told=told, halt=halt)
        found = Corpus(tmp_path)
        assert not found.whole
    assert len(found.found) >= len(found)
    assert steps < 60 or found.found
    whole = fill(found, base, 300)
    assert contents(whole) == contents(corpus)[: len(whole)]
    assert whole.learnt >= 300


def test_246_a_kill_loses_little(corpus, tiny_folder, tmp_path, monkeypatch):
    import forerun.train.gather as gather_module

    class Killed(BaseException):
        pass

    def told(news):
        if news.done > 200:
            raise Killed

    monkeypatch.setattr(gather_module, "SAVED_EACH_S", 0.0)
    with pytest.raises(Killed):
        fill(Corpus.begin(tmp_path, corpus.facts), tiny_target(tiny_folder), 300, told=told)
    saved = Corpus(tmp_path)
    assert sum(place.learnt for place in saved.found) > 100
    whole = fill(saved, tiny_target(tiny_folder), 300)
    assert contents(whole) == contents(corpus)[: len(whole)]


def test_328_answers_are_told_of_from_the_first_step_with_a_total_and_the_time_left(corpus, tiny_folder, tmp_path):
    news = []
    fill(Corpus.begin(tmp_path, corpus.facts), tiny_target(tiny_folder), 100, told=news.append)
    assert all(one.total and one.total >= one.done for one in news)
    assert [one.done for one in news[:2]] < [one.done for one in news[-2:]]
    assert all(one.left is not None for one in news if one.done)
    assert {one.phase for one in news} == {"answers"}


def test_321_the_time_of_answers_is_held_and_filled(corpus, tiny_folder, tmp_path):
    from time import perf_counter

    base = tiny_target(tiny_folder)
    source = SelfMade(Mix.parse(MIX), MIX)
    for seconds in (0.8, 3.2, 12.8):  # beside busy neighbours no conversation may end in the first
        at, folder = perf_counter(), tmp_path / str(seconds)
        until = Budget(None, at + seconds)
        gather(base, Corpus.begin(folder, corpus.facts), source, MANNER, until, lambda news: None, width=8)
        assert perf_counter() - at < 2 * seconds
        if Corpus(folder).learnt:
            break
    assert Corpus(folder).learnt > 0
    empty, gone = Corpus.begin(tmp_path / "no", corpus.facts), Budget(None, perf_counter())
    with pytest.raises(SpecError, match=r"no conversation ends in the time.*give more --minutes"):
        gather(base, empty, source, MANNER, gone, lambda news: None, width=8)
