"""`forerun lab domains --baseline`: other engines beside ours, and what goes wrong with them."""

import json
import sys
from pathlib import Path

import pytest

from forerun.cli.main import main
from forerun.lab.peers import arm, environment
from forerun.lab.peers.arm import Peer
from forerun.lab.peers.files import Reads
from forerun.lab.run import load_result

PEER = """
count = 0

def opened(settings):
    def answer(ids, max_tokens, ends):
        global count
        count += 1
        if count > LAST:
            raise MemoryError("it is full")
        return {"tokens": ids[-1:] * max_tokens, "first_s": 0.1, "decode_s": 0.4, "cpu_s": 0.5}
    return {"peer": "7"}, {"answer": answer}
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("forerun.lab.bench.reader", lambda: lambda nbytes, seconds: 2e10)
    monkeypatch.setattr(arm, "PAUSE_S", 0.0)
    monkeypatch.setenv(environment.VARIABLE, sys.executable)


@pytest.fixture
def domains(capsys, models, tmp_path, monkeypatch):
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in ("one two one two", "the sea the sea", "a b a b")))

    def run(*argv, last=99):
        module = tmp_path / "peer.py"
        module.write_text(PEER.replace("LAST", str(last)))
        monkeypatch.setitem(arm.PEERS, "llama.cpp", Peer(module, lambda bench: Reads(module, "BF16")))
        base = ("-m", str(models["folder"]), "--runtime", "torch", "--threads", "1", "--tokens", "9", "--ignore-eos")
        code = main(["lab", "domains", *base, "--workload", str(path), "-d", "ngram", *argv])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_a_peer_stands_beside_ours_in_the_figures_and_in_the_bench(domains, tmp_path):
    code, said, err = domains("--baseline", "llama.cpp", "--baseline", "bare", "--out", str(tmp_path / "d.json"))
    assert code == 0
    assert "starting llama.cpp" in err
    found = load_result(tmp_path / "d.json")
    (work,) = found.figures["workloads"].values()
    assert set(work["arms"]) == {"plain", "ngram", "llama.cpp", "bare"}
    assert work["arms"]["llama.cpp"]["ms_per_token"] == pytest.approx(50)
    assert work["arms"]["llama.cpp"]["answers"] == 3
    assert found.bench["peers"] == {"llama.cpp": {"peer": "7", "file": "peer.py", "weights": "BF16"}}
    assert found.answers["stack"].endswith("; beside it llama.cpp (peer 7), BF16 weights")
    assert sum(sample["arm"] == "llama.cpp" for sample in found.samples) == 3
    assert "llama.cpp" in said


def test_a_peer_that_fails_is_one_line_and_what_was_measured_is_kept(domains, tmp_path):
    argv = ("--baseline", "llama.cpp", "--out", str(tmp_path / "d.json"))
    code, out, err = domains(*argv, last=3)  # the warm-up and two prompts
    assert (code, out) == (1, "")
    assert "2 units are kept" in err
    (line,) = (line for line in err.splitlines() if line.startswith("Error: "))
    assert "llama.cpp failed at the task 'answer': MemoryError: it is full" in line
    log = Path(line.rpartition("its log is ")[2])
    assert "MemoryError" in log.read_text()
    log.unlink()
    code, _, err = domains(*argv)
    assert code == 0
    assert "2 units are measured already" in err


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (("--baseline", "llama"), "did you mean 'llama.cpp'"),
        (("--baseline", "llama.cpp", "--temperature", "1"), "greedily: leave out --baseline, or --temperature"),
        (("--baseline", "bare", "--temperature", "1"), "greedily"),
        (("--baseline", "transformers", "--dtype", "float16"), "transformers is compared at the weights bf16 or f32"),
        (("--baseline", "transformers", "--threads", "0"), "threads"),
    ],
)
def test_what_cannot_be_compared_is_one_line_and_exit_1(domains, argv, hint):
    code, out, err = domains(*argv)
    assert (code, out) == (1, "")
    *_, last = err.splitlines()
    assert last.startswith("Error: ")
    assert hint in last


def test_without_an_environment_it_says_how_to_make_one(domains, monkeypatch, tmp_path):
    monkeypatch.delenv(environment.VARIABLE)
    monkeypatch.setattr(arm, "interpreter", lambda: environment.interpreter(tmp_path))
    code, _, err = domains("--baseline", "llama.cpp")
    assert code == 1
    assert "scripts/peers" in err
    assert "FORERUN_PEERS" in err
