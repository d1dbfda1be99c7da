"""`forerun train` on a tiny model: every kind from prompts to drafts, resumed after a kill, and what is refused."""

from __future__ import annotations

import json
import math

import pytest
import torch
from training_words import SMALL

import forerun
from forerun.assemble import named
from forerun.cli.main import main
from forerun.testing.tiny import Tiny, write_folder


@pytest.mark.parametrize("kind", ["eagle", "eagle3", "p-eagle", "mtp", "medusa"])
def test_every_kind_from_a_corpus_to_drafts(kind, model, corpus, data, tmp_path, capsys):
    out = tmp_path / kind
    words = [
        "train",
        kind,
        "-m",
        str(model),
        "--corpus",
        str(corpus),
        "--tokens",
        "900",
        "--out",
        str(out),
        *SMALL,
        *data,
    ]
    vocab = [] if kind == "eagle" else ["--draft-vocab", "150"]
    assert main([*words, "--steps", "6", "--measures", "2", "--batch", "256", *vocab, "--json"]) == 0
    card = json.loads(capsys.readouterr().out)
    assert card["kind"] == kind
    assert card["steps"] == 6
    assert len(card["taus"]) == 2
    assert card["tau"]["all"] >= 1.0
    assert set(card["corpus"]["by_domain"]) == {"own"}
    assert "held-out prompts" in (out / "README.md").read_text()
    assert not (out / "training.pt").exists()
    texts = []
    for drafter in ("none", f"{kind}:path={out}"):
        assert main(["generate", "-m", str(model), "-d", drafter, "--max-tokens", "20", "--raw", "1, 2, 3"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_draft_model_from_a_corpus_to_drafts(family, data, tmp_path, capsys):
    model = write_folder(tmp_path / "model", Tiny(family, hidden=32, layers=4, inner=80, max_len=512, sharpness=2.0))
    out = tmp_path / "draft"
    words = ["train", "draft", "-m", str(model), "--out", str(out), "--tokens", "500", *SMALL, *data, "--layers", "2"]
    assert main([*words, "--steps", "3", "--measures", "1", "--batch", "256", "--json"]) == 0
    card = json.loads(capsys.readouterr().out)
    assert card["tau"]["all"] >= 1.0
    assert json.loads((out / "card.json").read_text())["steps"] == 3
    assert "A draft model" in (out / "README.md").read_text()
    assert forerun.load(out).parts.target.spec.layers == 2
    texts = []
    for drafter in ("none", f"model:path={out}", str(out)):
        assert main(["generate", "-m", str(model), "-d", drafter, "--max-tokens", "20", "--raw", "1, 2, 3"]) == 0
        texts.append(capsys.readouterr().out)
    assert len(set(texts)) == 1
    assert main([*words[:-1], "9", "--steps", "3", "--out", str(tmp_path / "other")]) == 1
    assert "from 2 to 3 of the target's 4 layers" in capsys.readouterr().err


def test_medusa_2_makes_another_target_and_says_so(model, corpus, data, tmp_path, capsys):
    out = tmp_path / "pair"
    common = ["-m", str(model), "--corpus", str(corpus), "--tokens", "900", *SMALL, *data, "--draft-vocab", "150"]
    words = ["train", "medusa2", *common, "--steps", "6", "--measures", "1", "--batch", "256", "--out", str(out)]
    assert main([*words, "--json"]) == 0
    said = capsys.readouterr()
    assert "another target" in said.err
    assert len(json.loads(said.out)["agreement"]) == 4, "the target with itself before, and the heads"
    assert "another target" in (out / "README.md").read_text()
    texts = []
    for drafter in ("none", f"medusa:path={out / 'medusa'}", str(out / "medusa")):
        assert main(["generate", "-m", str(out), "-d", drafter, "--max-tokens", "20", "--raw", "1, 2, 3"]) == 0
        texts.append(capsys.readouterr())
    assert len({text.out for text in texts}) == 1
    assert not any("fingerprint" in text.err for text in texts), "the heads are the new target's"


def test_a_head_is_taught_on_and_begins_another_kind(model, corpus, data, tmp_path, capsys):
    from forerun.models.heads.formats import own

    common = ["-m", str(model), "--corpus", str(corpus), "--tokens", "900", *SMALL, *data]
    common += ["--measures", "1", "--batch", "256"]
    first, second, other = (tmp_path / name for name in ("first", "second", "other"))
    assert main(["train", "eagle3", *common, "--steps", "4", "--draft-vocab", "150", "--out", str(first)]) == 0
    # At a rate of nothing, teaching on gives back what there was: scales are folded in and out.
    words = ["train", "eagle3", *common, "--from", str(first), "--steps", "1", "--rate", "1e-9", "--out", str(second)]
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["begun_from"]["steps"] == 4
    before, after = own.read(first), own.read(second)
    assert torch.equal(before.words, after.words)
    for name in before.tensors:
        assert torch.allclose(before.floats(name), after.floats(name), rtol=0.02, atol=0.02), name
    words = ["train", "p-eagle", *common, "--from", str(first), "--steps", "1", "--rate", "1e-9", "--out", str(other)]
    assert main([*words, "--draft-vocab", "120"]) == 0
    parallel = own.read(other)
    for name in before.tensors.keys() - {"lm_head.weight"}:
        assert torch.allclose(before.floats(name), parallel.floats(name), rtol=0.02, atol=0.02), name
    rows = {int(word): row for word, row in zip(before.words, before.floats("lm_head.weight"), strict=True)}
    shared = [
        (rows[int(w)], r)
        for w, r in zip(parallel.words, parallel.floats("lm_head.weight"), strict=True)
        if int(w) in rows
    ]
    assert len(shared) > 60
    assert all(torch.allclose(one, two, rtol=0.02, atol=0.02) for one, two in shared)
    words = ["train", "medusa", *common, "--from", str(first), "--steps", "1", "--out", str(tmp_path / "no")]
    assert main(words) == 1
    assert "nothing of the eagle3 head" in capsys.readouterr().err
    words = ["train", "eagle3", *common, "--from", str(tmp_path), "--steps", "1", "--out", str(tmp_path / "no")]
    assert main(words) == 1
    assert "holds no weights of a head" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["eagle3", "medusa", "mtp"])
def test_an_end_is_kept_bit_for_bit_while_the_rest_learns(kind, model, corpus, data, tmp_path, capsys, monkeypatch):
    from forerun.models.heads.formats import own
    from forerun.train.trainer import State

    found = State.found
    monkeypatch.setattr(State, "found", lambda state, tau: found(state, tau + state.step))  # the last is the best

    common = ["-m", str(model), "--corpus", str(corpus), "--tokens", "900", *SMALL, *data]
    common += ["--measures", "1", "--batch", "256"]
    first, second, free = (tmp_path / name for name in ("first", "second", "free"))
    start = ["train", kind, *common, "--steps", "4", "--draft-vocab", "150", "--own-end", "--out", str(first)]
    assert main(start) == 0
    on = ["train", kind, *common, "--from", str(first), "--steps", "6"]
    assert main([*on, "--keep-end", "--out", str(second)]) == 0
    assert main([*on, "--own-end", "--out", str(free)]) == 0
    before, after, other = own.read(first), own.read(second), own.read(free)
    for name in before.config.ends:
        assert torch.equal(before.tensors[name].codes, after.tensors[name].codes)
        assert torch.equal(before.tensors[name].scales, after.tensors[name].scales)
        assert not torch.equal(before.floats(name), other.floats(name)), "the end learns where it is not kept"
    left = before.tensors.keys() - {*before.config.ends}
    assert any(not torch.equal(before.floats(name), after.floats(name)) for name in left)
    capsys.readouterr()
    begin = ["--from", str(first), "--draft-vocab", "120"]
    for words in (["eagle3"], ["eagle3", *begin], ["eagle"], [kind, *begin[:2], "--no-own-end"]):
        assert main(["train", *words, *common, "--keep-end", "--steps", "1", "--out", str(tmp_path / "no")]) == 1
        assert "keep" in capsys.readouterr().err


def test_a_killed_training_goes_on(model, corpus, data, tmp_path, capsys, monkeypatch):
    from forerun.train import trainer

    monkeypatch.setattr(trainer, "KEPT_EACH_S", 0.0)
    monkeypatch.setattr(trainer, "SAVING", math.inf)
    words = ["train", "eagle3", "-m", str(model), "--corpus", str(corpus), "--tokens", "900", *SMALL, *data]
    words += ["--steps", "6", "--measures", "1", "--batch", "256", "--draft-vocab", "150"]
    assert main([*words, "--out", str(tmp_path / "whole")]) == 0
    step, calls = trainer._step, []

    def killed(*args):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return step(*args)

    monkeypatch.setattr(trainer, "_step", killed)
    assert main([*words, "--out", str(tmp_path / "rest")]) != 0
    assert (tmp_path / "rest" / "training.pt").exists()
    monkeypatch.setattr(trainer, "_step", step)
    assert main([*words, "--out", str(tmp_path / "rest")]) == 0
    from forerun.models.heads.formats import own

    whole, rest = own.read(tmp_path / "whole"), own.read(tmp_path / "rest")
    for name in whole.tensors:
        assert torch.equal(whole.floats(name), rest.floats(name)), name


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["--draft-vocab", "9999", "--corpus", "FRESH"], "from 1 to the target's 264 words"),
        (["--taps", "2,9", "--corpus", "FRESH"], "tap 9 is past the last layer"),
        (["--loss", "mse", "--corpus", "FRESH"], "unknown loss"),
        (["--layers", "0", "--corpus", "FRESH"], "layers must be at least 1, got 0"),
        (["--unroll", "-1", "--corpus", "FRESH"], "unrolled steps or heads must be at least 1, got -1"),
        (["--also", "/nowhere", "--corpus", "FRESH"], "nowhere"),
        (["--device", "gpu", "--corpus", "FRESH"], "device 'gpu' is not available"),
        (["--steps", "0"], "steps must be at least 1, got 0"),
        (["--minutes", "-3"], "minutes must be at least 0.1, got -3"),
        (["--minutes", "nan"], "minutes must be at least 0.1, got nan"),
        (["--tokens", "0", "--corpus", "FRESH"], "tokens must be at least 1, got 0"),
        (["--width", "0", "--corpus", "FRESH"], "width must be at least 1, got 0"),
        (["--batch", "1"], "batch must be at least 16, got 1"),
        (["--measures", "0"], "measures must be at least 1, got 0"),
        (["--rate", "7"], "rate must be above 0 and below 1"),
        (["--answer-tokens", "1", "--corpus", "FRESH"], "answers have from 4"),
        (["--domain", "cooking", "--corpus", "FRESH"], "no domain 'cooking'"),
        (["--domain", "chat:x", "--corpus", "FRESH"], "weight of a domain"),
        (["--data", "/nowhere.jsonl", "--corpus", "FRESH"], "nowhere"),
        (["--answer-tokens", "20"], "holds a corpus with manner"),
        (["--data", "DATA", "--domain", "chat"], "give one of them"),
        (["--domain", "chat"], "holds a corpus with asked '80 conversations of own.txt', this run asks for 'chat'"),
    ],
)
def test_what_is_refused(words, match, model, corpus, data, tmp_path, capsys):
    words = [{"FRESH": str(tmp_path / "fresh"), "DATA": data[1]}.get(word, word) for word in words]
    base = [
        "train",
        "eagle3",
        "-m",
        str(model),
        "--corpus",
        str(corpus),
        "--out",
        str(tmp_path / "o"),
        "--tokens",
        "900",
    ]
    own = [] if "--domain" in words else data
    assert main([*base, *SMALL, *own, "--steps", "1", *words]) == 1
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert match in said, said
    assert not (tmp_path / "fresh").exists(), "nothing is begun that cannot go on"
    assert not (tmp_path / "o").exists()


def test_a_head_is_shown_and_written_for_others(model, tmp_path, capsys):
    from forerun.models.heads.formats import own
    from forerun.models.heads.opening import Fit, open_head
    from forerun.testing.heads import random_config, random_head

    fit = Fit(model.name, 32, 264, 3, "")
    sizes = {"intermediate_size": 40, "heads": 4, "kv_heads": 2, "head_dim": 8}
    for kind, forms in (("eagle3", ("safeai", "speculators")), ("p-eagle", ("speculators",)), ("mtp", ("mtp",))):
        head = random_head(random_config(kind, 264, 32, 100, **sizes), 1)
        own.write(head, tmp_path / kind, compact=False)
        for form in forms:
            out = tmp_path / f"{kind}-{form}"
            words = ["head", str(tmp_path / kind), "-m", str(model), "--export", form, "--out", str(out)]
            assert main([*words, "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["kind"] == kind
            assert named(f"{out}:depth=2") == f"{kind}:path={out},depth=2"
            found, _ = open_head(out, fit)
            assert torch.equal(found.floats("fc.weight"), head.floats("fc.weight"))
    assert (
        main(["head", str(tmp_path / "mtp"), "-m", str(model), "--export", "medusa", "--out", str(tmp_path / "x")]) == 1
    )
    assert "this is mtp" in capsys.readouterr().err
    assert main(["head", str(tmp_path / "mtp"), "-m", str(model), "--out", str(tmp_path / "x")]) == 1
    assert "go together" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "words", "match"),
    [
        ("eagle", ["--draft-vocab", "50"], "eagle has no draft vocab to choose"),
        ("draft", ["--unroll", "3"], "draft has no unrolled steps or heads to choose"),
        ("draft", ["--layers", "7"], "from 2 to 2 of the target's 3 layers"),
        ("medusa2", ["--layers", "2"], "medusa2 has no layers to choose"),
    ],
)
def test_an_option_that_a_kind_does_not_heed_is_refused_before_there_is_data(
    kind, words, match, model, tmp_path, capsys
):
    base = ["train", kind, "-m", str(model), "--out", str(tmp_path / "o"), "--steps", "1", *SMALL]
    assert main([*base, *words]) == 1
    assert match in capsys.readouterr().err
    assert not (tmp_path / "o" / "corpus" / "shard-00000.safetensors").exists()


def test_heads_that_do_not_go_together_are_refused_by_what_is_odd(model, corpus, data, tmp_path, capsys):
    """From each kind to each other: what has a place goes over, or a sentence says why nothing can."""
    from forerun.models.heads.formats import own
    from forerun.testing.heads import random_config, random_head

    sizes = {"intermediate_size": 48, "heads": 4, "kv_heads": 2, "head_dim": 8}
    common = ["-m", str(model), "--corpus", str(corpus), "--tokens", "900", *SMALL, *data, "--steps", "1"]
    for begun in ("eagle", "eagle3", "p-eagle", "mtp", "medusa"):
        head = random_head(
            random_config(begun, 264, 32, None if begun == "eagle" else 100, **({} if begun == "medusa" else sizes)), 1
        )
        own.write(head, tmp_path / begun)
        for kind in ("eagle", "eagle3", "p-eagle", "mtp", "medusa"):
            out = tmp_path / f"{begun}-{kind}"
            words = ["train", kind, *common, "--from", str(tmp_path / begun), "--measures", "1", "--out", str(out)]
            status, said = main(words), capsys.readouterr()
            assert status == 0 or "has a place" in said.err, (begun, kind, said.err[-300:])
    other = random_head(random_config("eagle3", 264, 32, 100, **sizes, taps=(0, 2, 3)), 1)
    own.write(other, tmp_path / "taps")
    words = ["train", "eagle3", *common, "--from", str(tmp_path / "taps"), "--out", str(tmp_path / "no")]
    assert main(words) == 1
    assert "reads layers (0, 2, 3), the corpus has (0, 1, 2)" in capsys.readouterr().err


def test_a_killed_run_by_minutes_goes_on_with_the_same_data(model, data, tmp_path, capsys, monkeypatch):
    """More data would mean other draft words, and so other rows in what was half learnt."""
    from forerun.train import trainer
    from forerun.train.corpus import Corpus

    monkeypatch.setattr(trainer, "KEPT_EACH_S", 0.0)
    monkeypatch.setattr(trainer, "SAVING", math.inf)
    step, calls = trainer._step, []

    def killed(*args):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return step(*args)

    words = ["train", "eagle3", "-m", str(model), "--out", str(tmp_path / "o"), "--minutes", "0.1", *SMALL, *data]
    words += ["--steps", "5", "--measures", "1", "--batch", "256", "--draft-vocab", "100"]
    monkeypatch.setattr(trainer, "_step", killed)
    assert main(words) != 0
    before = Corpus(tmp_path / "o" / "corpus").places
    assert before
    monkeypatch.setattr(trainer, "_step", step)
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 5
    assert Corpus(tmp_path / "o" / "corpus").places == before
