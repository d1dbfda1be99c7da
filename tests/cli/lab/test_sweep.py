"""`lab sweep --over NAME` is `lab NAME`, and the number of threads is one of the names."""

import json

import pytest

from forerun.cli.main import main
from forerun.lab.experiments import views
from forerun.native import ext

pytestmark = pytest.mark.skipif(bool(ext.why_not()), reason=f"the native runtime: {ext.why_not()}")


@pytest.fixture
def threads():
    yield
    ext.set_threads(None)


@pytest.fixture
def asked(model):
    return ["-m", str(model), "-d", "ngram:min=1", "--workload", "code", "--prompts", "2", "--tokens", "6"]


def test_threads_are_swept_over(asked, tmp_path, capsys, threads):
    out = tmp_path / "threads.json"
    assert main(["lab", "sweep", "--over", "threads", "--counts", "1,2", *asked, "--out", str(out)]) == 0
    kept = json.loads(out.read_text())
    points = kept["figures"]["sets"]["code"]["points"]
    assert (kept["experiment"], [point["value"] for point in points]) == ("threads", [1, 2])
    assert all(point["arms"]["ngram:min=1"]["same_text"] == point["arms"]["plain"]["answers"] for point in points)
    assert {sample["point"] for sample in kept["samples"]} == {1, 2}
    assert "threads" in capsys.readouterr().out
    assert views("threads", kept["figures"])


def test_a_sweep_is_the_command_of_its_name(asked, tmp_path, capsys):
    told = []
    for command in (["temperature"], ["sweep", "--over", "temperature"]):
        out = tmp_path / f"{len(told)}.json"
        assert main(["lab", *command, "--temperature", "0,1", *asked, "--out", str(out)]) == 0
        found = json.loads(out.read_text())
        told.append((found["experiment"], found["answers"], list(found["figures"]["sets"])))
    assert told[0] == told[1]


@pytest.mark.parametrize("over", [[], ["nothing"], ["--quick"]])
def test_what_is_no_sweep_is_named(over, capsys):
    assert main(["lab", "sweep", "--over", *over]) != 0
    assert "sweep" in capsys.readouterr().err
