"""`forerun lab endpoint` as it is typed."""

import argparse
import json

import pytest

from forerun.cli.lab import endpoint
from forerun.cli.tell import add_common
from forerun.core.errors import LoadError, SpecError
from forerun.lab.endpoint import view
from forerun.lab.run import load_result
from forerun.lab.views import spoken

from .server import LabServer, Script


@pytest.fixture
def prompts(tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"id": f"p{i}", "text": f"question {i}"}) + "\n" for i in range(4)))
    return str(file)


def command(lab, prompts, *more):
    parser = argparse.ArgumentParser(prog="forerun lab endpoint")
    add_common(parser)
    endpoint.add(parser)
    line = ["--url", lab.url, "--model", "A", "--workload", prompts, "--tokens", "8", "--idle-wait", "0", *more]
    return endpoint.run(parser.parse_args(line))


def test_a_whole_run(prompts, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("LAB_KEY", "s3cret")
    script = Script(tokens=8, per_event=2, gap_s=0.004, usage="continuous", details={"accepted_prediction_tokens": 3})
    out = tmp_path / "run.json"
    options = ["--model", "B", "--concurrency", "1,2", "--prices", "1,2", "--key-env", "LAB_KEY"]
    with LabServer(script) as lab:
        assert command(lab, prompts, *options, "--shape", "chain of 3", "--out", str(out)) == 0
        assert lab.asked[0].headers["authorization"] == "Bearer s3cret"
    said = capsys.readouterr().out
    assert "s3cret" not in out.read_text() + said
    result = load_result(out)
    assert result.answers["shape"] == "chain of 3"
    assert "lab-server/1" in result.answers["stack"]
    assert result.bench["server"]["asked_as"]["B"]["usage"] == "continuous"
    cell = result.figures["cells"]["B"]["2"]
    assert (cell["requests"], cell["counted_by"], cell["events"]) == (4, "usage of every event", 16)
    assert cell["cost"]["total"] == pytest.approx(4 * (10 * 1 + 8 * 2) / 1e6)
    assert cell["cost"]["accepted_prediction_tokens"] == 12
    assert spoken(view(result.figures)) in said
    assert not list(tmp_path.glob("*.partial"))


def test_quick_takes_what_the_prompts_allow(prompts, capsys):
    with LabServer() as lab:
        assert command(lab, prompts, "--quick", "--concurrency", "1,16", "--json") == 0
    assert list(json.loads(capsys.readouterr().out)["figures"]["cells"]["A"]) == ["1"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--concurrency", "16"], "16 requests at once need as many prompts"),
        (["--concurrency", "0"], "--concurrency takes whole numbers"),
        (["--key-env", "NOT_THERE"], "no such environment variable"),
        (["--prices", "free"], "--prices takes IN,OUT"),
        (["--retries", "-1"], "--retries takes"),
        (["--tokens", "0"], "tokens must be from 1 up"),
    ],
)
def test_bad_options_are_refused_before_anybody_is_asked(prompts, more, message):
    with LabServer() as lab:
        with pytest.raises(SpecError, match=message):
            command(lab, prompts, *more)
        assert not lab.asked


def test_nobody_listening_is_one_line(prompts, tmp_path):
    with LabServer() as lab:
        pass
    with pytest.raises(LoadError, match="is the server up"):
        command(lab, prompts, "--out", str(tmp_path / "run.json"))
    assert not list(tmp_path.glob("run.json*"))


def test_a_metrics_page_that_was_given_and_is_not_there_is_one_line(prompts, tmp_path):
    with LabServer() as gone:
        pass
    with LabServer() as lab:
        for page, why in ((f"{gone.url}/metrics", "cannot connect to"), (f"{lab.url}/metrics", "answers 404")):
            with pytest.raises(LoadError, match=f"--metrics {page} cannot be read: .*{why}") as caught:
                command(lab, prompts, "--metrics", page, "--out", str(tmp_path / "run.json"))
            assert "\n" not in str(caught.value)
            assert not list(tmp_path.glob("run.json*"))
