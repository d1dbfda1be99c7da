"""The command line on tiny models: text on stdout, one line on stderr for what was to be expected."""

import io
import json
import os
import re
import subprocess
import sys

import pytest
import torch

from forerun.cli.common import engine_from, params_from
from forerun.cli.main import COMMANDS, main, parser
from forerun.native import ext
from forerun.testing.tiny import Tiny, write_folder


@pytest.fixture
def model(models):
    return str(models["folder"])


def run(capsys, *argv):
    code = main(list(argv))
    out, err = capsys.readouterr()
    return code, out, err


def test_generate_prints_the_text_alone(capsys, model):
    code, out, err = run(capsys, "generate", "-m", model, "--max-tokens", "8", "hello")
    assert code == 0
    assert out.endswith("\n")
    assert err == ""


@pytest.mark.parametrize("sampling", [["--temperature", "0"], ["--temperature", "0.8", "--seed", "7"]])
def test_json_holds_everything_and_drafts_change_no_token(capsys, model, sampling):
    found = []
    for drafter in ("none", "ngram:min=1"):
        argv = ["generate", "-m", model, "-d", drafter, *sampling, "--json", "--max-tokens", "20", "abcabc"]
        code, out, _ = run(capsys, *argv)
        assert code == 0
        found.append(json.loads(out))
    assert found[0]["token_ids"] == found[1]["token_ids"]
    assert set(found[0]) >= {"text", "token_ids", "finish_reason", "usage", "stats"}
    assert set(found[0]["stats"]) >= {"target_passes", "drafted", "accepted", "tau", "tokens_per_s", "phases"}
    assert set(found[0]["stats"]["phases"]) >= {"draft", "score", "verify", "commit"}
    usage = found[0]["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_raw_continues_the_text_and_the_template_does_not(capsys, model):
    counts = []
    for flags in ([], ["--raw"]):
        _, out, _ = run(capsys, "generate", "-m", model, "--json", "--max-tokens", "1", *flags, "hi")
        counts.append(json.loads(out)["usage"]["prompt_tokens"])
    assert counts == [counts[0], 2]
    assert counts[0] > 10


def test_every_option_changes_what_it_names(capsys, model):
    """Failure case 139: an option is either honoured or refused, never swallowed."""
    base = [
        "generate",
        "-m",
        model,
        "--json",
        "--raw",
        "--temperature",
        "1.5",
        "--seed",
        "3",
        "--max-tokens",
        "12",
        "ab",
    ]

    def ids(*extra):
        return json.loads(run(capsys, *base, *extra)[1])["token_ids"]

    plain = ids()
    for extra in (
        ["--temperature", "0.1"], ["--top-p", "0.1"], ["--top-k", "1"], ["--min-p", "0.9"], ["--seed", "4"],
        ["--max-tokens", "3"], ["--repetition-penalty", "9"], ["--presence-penalty", "2"], ["--frequency-penalty", "2"],
    ):  # fmt: skip
        assert ids(*extra) != plain, extra


ENGINE = {
    "--model": (["{other}"], lambda engine: engine.parts.target.spec.name, "draft"),
    "--drafter": (["ngram"], lambda engine: engine.parts.drafter.name, "ngram"),
    "--verify": (["tree"], lambda engine: engine.parts.verify.name, "tree"),
    "--runtime": (["hf"], lambda engine: type(engine.parts.target).__name__, "HfTarget"),
    "--weights": (["bf16"], lambda engine: engine.parts.target.spec.dtype, "bfloat16"),
    "--kv": (["int8"], lambda engine: engine.parts.target.runner.kv_format, "int8"),
    "--dtype": (["bfloat16"], lambda engine: engine.parts.target.spec.dtype, "bfloat16"),
    "--threads": (["1"], lambda engine: torch.get_num_threads(), 1),
    "--max-len": (["64"], lambda engine: engine.parts.target.spec.max_len, 64),
    "--kv-tokens": (["512"], lambda engine: engine.parts.target.pool.blocks, 32),
    "--costs": (["free", "-d", "skip:layers=1"], lambda engine: engine.parts.drafter._worth.prices.forward(99), 1.0),
}
SAMPLING = {
    "--max-tokens": ("3", 3), "--temperature": ("0.5", 0.5), "--top-p": ("0.5", 0.5), "--top-k": ("4", 4),
    "--min-p": ("0.1", 0.1), "--repetition-penalty": ("1.5", 1.5), "--presence-penalty": ("1", 1.0),
    "--frequency-penalty": ("1", 1.0), "--seed": ("3", 3), "--stop": ("x", ["x"]), "--min-tokens": ("2", 2),
    "--ignore-eos": (None, True), "--prediction": ("abc", "abc"), "--logprobs": ("2", 2),
}  # fmt: skip
SHOWN = {
    "--help",
    "--debug",
    "--raw",
    "--json",
    "--stats",
    "--show",
    "--n",
    "--system",
    "--tools",
    "--chat-template-kwargs",
    "--prefill",
    "--parse-special",
    "--no-parse-special",
}  # how it is asked and shown: tests of their own


def test_139_no_option_is_forgotten():
    commands = next(action for action in parser()._actions if action.dest == "command").choices
    options = {option for a in commands["generate"]._actions for option in a.option_strings if option[:2] == "--"}
    assert options == ENGINE.keys() | SAMPLING.keys() | SHOWN | {"--device"}  # one that is not there is refused below


@pytest.mark.parametrize("option", ENGINE)
def test_139_every_option_of_the_engine_arrives(models, option):
    values, seen, expected = ENGINE[option]
    if option in ("--weights", "--kv") and ext.why_not():
        pytest.skip(f"no native runtime: {ext.why_not()}")
    threads = torch.get_num_threads()
    argv = ["generate", "-m", str(models["folder"]), option, *(v.format(other=models["draft"]) for v in values), "x"]
    try:
        with engine_from(parser().parse_args(argv)) as engine:
            assert seen(engine) == expected
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("option", SAMPLING)
def test_139_every_option_of_an_answer_arrives(option):
    text, expected = SAMPLING[option]
    args = parser().parse_args(["generate", option, *([] if text is None else [text]), "x"])
    assert params_from(args)[option[2:].replace("-", "_")] == expected


def test_several_answers_and_logprobs_in_json(capsys, model):
    argv = [
        "generate",
        "-m",
        model,
        "--json",
        "--n",
        "2",
        "--logprobs",
        "2",
        "--temperature",
        "1",
        "--max-tokens",
        "4",
        "x",
    ]
    found = json.loads(run(capsys, *argv)[1])
    assert len(found["choices"]) == 2
    assert all(len(entry["top"]) == 2 for entry in found["logprobs"])
    assert [len(choice["logprobs"]) for choice in found["choices"]] == [4, 4]
    assert found["choices"][0]["logprobs"] == found["logprobs"]


def test_stats_go_to_stderr(capsys, model):
    code, out, err = run(capsys, "generate", "-m", model, "--stats", "--max-tokens", "4", "x")
    assert code == 0
    assert "target passes" in err
    assert "target passes" not in out


def test_show_colours_only_on_a_terminal(capsys, model, monkeypatch):
    argv = [
        "generate",
        "-m",
        model,
        "-d",
        "ngram:min=1,factor=8",
        "--show",
        "--raw",
        "--max-tokens",
        "30",
        "ababababab",
    ]
    _, plain, _ = run(capsys, *argv)
    assert "\x1b" not in plain
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    _, shown, _ = run(capsys, *argv)
    assert shown.replace("\x1b[32m", "").replace("\x1b[0m", "") == plain


WRONG = {
    "an unknown model": (["-m", "smolm2", "x"], "smollm2"),
    "an unknown drafter": (["-m", "{m}", "-d", "ngrem", "x"], "did you mean 'ngram'"),
    "an unknown key": (["-m", "{m}", "-d", "ngram:dept=3", "x"], "depth"),
    "a wrong value": (["-m", "{m}", "-d", "ngram:depth=x", "x"], "depth"),
    "a wrong temperature": (["-m", "{m}", "--temperature", "-1", "x"], "temperature"),
    "an unknown device": (["-m", "{m}", "--device", "tpu", "x"], "device 'tpu'"),
    "an empty prompt": (["-m", "{m}", ""], "empty"),
    "an empty raw prompt": (["-m", "{m}", "--raw", ""], "empty"),
    "a long prompt": (["-m", "{m}", "--raw", "x" * 300], "300 tokens"),
    "an empty stop": (["-m", "{m}", "--stop", "", "x"], "stop"),
    "several answers as text": (["-m", "{m}", "--n", "2", "x"], "--json"),
    "log-probabilities as text": (["-m", "{m}", "--logprobs", "2", "x"], "--json"),
    "a folder that is no model": (["-m", "{here}", "x"], "safetensors"),
    "a file that is no model": (["-m", "{file}", "x"], "GGUF"),
    "instructions without a template": (["-m", "{m}", "--raw", "--system", "be brief", "x"], "--raw"),
    "a home folder of nobody": (["-m", "~nobody-of-that-name/x", "x"], "home folder"),
    "a prediction file that is not there": (["-m", "{m}", "--prediction", "@nowhere.txt", "x"], "nowhere.txt"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls_are_one_line_and_exit_1(capsys, model, tmp_path, name):
    argv, hint = WRONG[name]
    file, folder = tmp_path / "file.gguf", tmp_path / "folder"
    file.write_text("this is not a model at all")
    folder.mkdir()
    argv = [part.format(m=model, here=folder, file=file) for part in argv]
    code, out, err = run(capsys, "generate", *argv)
    assert code == 1
    assert out == ""
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert hint in err


WRONG_WORDS = {
    "a runtime of an experiment": (["lab", "curve", "--runtime", "rocket"], "it takes auto, native, torch, hf"),
    "option": (["generate", "--temprature", "1", "x"], "did you mean --temperature?"),
    "option with a value": (["generate", "--max_tokens=3", "x"], "did you mean --max-tokens?"),
    "option of an experiment": (["lab", "domains", "--workloads", "code"], "did you mean --workload?"),
    "option that nothing is like": (["chat", "--json"], "unrecognized arguments: --json"),
    "option before the command": (["--temperature", "1", "generate"], "forerun COMMAND --temperature"),
    "command": (["generat"], "did you mean generate?"),
    "command that nothing is like": (["zzzz"], "it takes generate, chat, "),
    "experiment": (["lab", "advize"], "did you mean advise?"),
    "experiment that nothing is like": (["lab", "zzzz"], "it takes advise, curve, "),
    "no experiment": (["lab"], "EXPERIMENT"),
    "choice": (["generate", "--runtime", "nativ", "x"], "did you mean native?"),
    "positional choice": (["train", "eagel3", "-m", "a", "--out", "b"], "did you mean eagle3?"),
    "number": (["generate", "--max-tokens", "many", "x"], "invalid int value: 'many'"),
    "value that is missing": (["lab", "curve", "--rows"], "expected one argument"),
    "options that are missing": (["train", "eagle3"], "-m/--model, --out"),
    "two that exclude each other": (["lab", "curve", "--tree", "--prompt"], "not allowed with"),
    "word too many": (["doctor", "now"], "unrecognized arguments: now"),
    "text of several lines": (["doctor", "a\nb\nc\nd\x1b[2J"], r"a\nb\nc\nd\x1b[2J"),
    "text without end": (["doctor", "x" * 10_000], "xxx …"),
}


@pytest.mark.parametrize("name", WRONG_WORDS)
def test_a_wrong_word_is_at_most_three_lines_with_a_hint_and_exit_2(capsys, name):
    argv, hint = WRONG_WORDS[name]
    with pytest.raises(SystemExit) as caught:
        main(argv)
    out, err = capsys.readouterr()
    assert (caught.value.code, out) == (2, "")
    assert hint in err
    assert err.count("\n") <= 3
    assert len(err) < 600
    assert "--help" in err, "where the rest stands"


def test_python_m_forerun_is_the_command():
    words = [sys.executable, "-m", "forerun"]
    helped = subprocess.run([*words, "lab", "curve", "--help"], capture_output=True, text=True, check=True)
    assert helped.stdout.startswith("usage: forerun lab curve ")
    wrong = subprocess.run([*words, "generat"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "forerun --help" in wrong.stderr


def test_126_a_drafter_that_cannot_be_used_is_an_error_not_a_silence(capsys, model):
    code, _, err = run(capsys, "generate", "-m", model, "-d", "model:path=./missing", "x")
    assert code == 1
    assert "missing" in err


def test_126_a_draft_model_of_another_vocabulary_is_an_error(capsys, model, tmp_path):
    other = write_folder(tmp_path / "other")
    text = (other / "tokenizer.json").read_text()
    (other / "tokenizer.json").write_text(text.replace('"z": 122', '"zz": 122'))
    code, out, err = run(capsys, "generate", "-m", model, "-d", f"model:path={other}", "x")
    assert (code, out) == (1, "")
    assert "another tokenizer" in err
    assert "'zz'" in err


@pytest.mark.parametrize(("drafter", "warned"), [("none", True), ("ngram", True), ("prediction", False),
                                                 ("first_of:of=prediction+ngram", False)])  # fmt: skip
def test_126_a_prediction_that_nobody_reads_is_said_so(capsys, model, drafter, warned):
    argv = ["generate", "-m", model, "-d", drafter, "--prediction", "abc", "--max-tokens", "2", "x"]
    code, _, err = run(capsys, *argv)
    assert code == 0
    assert ("--prediction" in err) == warned
    assert err.count("\n") == warned


def test_a_lossy_verifier_says_so_at_run_time(capsys, model):
    code, _, err = run(capsys, "generate", "-m", model, "-d", "ngram", "--verify", "typical", "--max-tokens", "2", "x")
    assert code == 0
    assert "lossy" in err


def test_debug_shows_the_traceback(model):
    from forerun.core.errors import SpecError

    with pytest.raises(SpecError):
        main(["generate", "--debug", "-m", model, "--temperature", "-1", "x"])


def test_every_command_has_help_with_an_example(capsys):
    for name in COMMANDS:
        with pytest.raises(SystemExit) as caught:
            main([name, "--help"])
        assert caught.value.code == 0
        assert f"forerun {name}" in capsys.readouterr().out


def test_drafters_lists_every_drafter_with_documented_options(capsys):
    found = json.loads(run(capsys, "drafters", "--json")[1])
    assert {"none", "ngram", "suffix", "prediction", "model", "skip", "first_of"} <= set(found)
    for entry in found.values():
        assert entry["summary"]
        assert all(option["help"] for option in entry["options"])
    assert "ngram" in run(capsys, "drafters")[1]


def test_demo_compares_both_ways(capsys, model, tmp_path):
    long = write_folder(tmp_path / "long", Tiny(max_len=2048))
    argv = ("demo", "-m", str(long), "--tokens", "12", "--prompts", "2")
    code, out, _ = run(capsys, *argv, "--json")
    assert code == 0
    found = json.loads(out)
    assert set(found) >= {"identical", "tokens", "plain_ms_per_token", "ms_per_token", "speedup", "tau"}
    assert found["identical"] is True
    assert found["tokens"] == 24
    code, out, _ = run(capsys, *argv)
    assert code == 0
    assert "same text" in out
    assert "edit-rename" in out
    assert "code-" in out, "prompts of several suites, in turn"


def test_the_demo_takes_the_best_that_there_is():
    from forerun.cli.demo import best_for

    assert best_for([]) == "ngram"
    assert best_for(["medusa", "eagle3", "p-eagle"]) == "mixed:of=ngram+eagle3"


def test_chat_answers_line_by_line(model):
    done = subprocess.run(
        [sys.executable, "-m", "forerun.cli.main", "chat", "-m", model, "--max-tokens", "6", "--stats"],
        input="hello\n\n/new\nagain\n/bye\n", capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("target passes") == 2


def test_a_closed_pipe_is_no_traceback(model):
    command = (
        f"{sys.executable} -m forerun.cli.main generate -m {model} --max-tokens 200 --raw ab | head -c 1 >{os.devnull}"
    )
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


def test_wrong_sampling_is_refused_before_a_model_is_loaded(capsys, monkeypatch):
    monkeypatch.setattr("forerun.assemble.load", lambda *args, **kwargs: pytest.fail("a model was loaded"))
    for command in (["chat"], ["generate", "hi"]):
        code, _, err = run(capsys, *command, "--temperature", "9000")
        assert code == 1
        assert "temperature" in err


@pytest.fixture
def template(model, tmp_path):
    """The tiny model with a template that reads tools and a switch."""
    folder = write_folder(tmp_path / "model")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["chat_template"] = "{% for t in tools or [] %}[{{ t.name }}]{% endfor %}" + settings[
        "chat_template"
    ].replace("assistant\n", "assistant\n{% if thinks is false %}-{% endif %}")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return str(folder)


@pytest.mark.parametrize("command", ["generate", "chat"])
def test_228_options_reach_the_template(capsys, monkeypatch, template, tmp_path, command):
    from forerun.cli import show

    (tmp_path / "tools.json").write_text('[{"name": "f"}]')
    asked = []
    monkeypatch.setattr(show, "stream", lambda engine, prompt, *rest, **more: asked.append(prompt) or sys.exit(7))
    tools = ["--tools", str(tmp_path / "tools.json")]
    every = [[], tools, ["--chat-template-kwargs", '{"thinks": false}'], ["--parse-special"]]
    for extra in every + ([["--prefill", "So\\n"]] if command == "generate" else []):
        monkeypatch.setattr(sys, "stdin", io.StringIO("" if command == "generate" else "a<|im_end|>b\n"))
        with pytest.raises(SystemExit):
            main([command, "-m", template, *extra, *(["a<|im_end|>b"] if command == "generate" else [])])
    plain, *others = asked
    start, end = [258], [259]
    assert plain == [*start, *b"user\na<|im_end|>b", *end, *b"\n", *start, *b"assistant\n"]
    special = [*start, *b"user\na", *end, *b"b", *end, *b"\n", *start, *b"assistant\n"]
    assert others == [[*b"[f]", *plain], [*plain, *b"-"], special, [*plain, *b"So\n"]][: len(others)]


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["--chat-template-kwargs", "{"], "not JSON"), (["--chat-template-kwargs", "[]"], "JSON object"),
        (["--chat-template-kwargs", '{"enable_thinking": false}'], "unknown variable of this chat template"),
        (["--tools", "{m}/config.json"], "JSON list"), (["--raw", "--prefill", "x"], "--prefill speaks"),
        (["--raw", "--tools", "{m}/config.json"], "JSON list|--tools speaks"),
    ],
)  # fmt: skip
def test_228_options_that_mean_nothing_are_refused(capsys, model, argv, why):
    code, _, err = run(capsys, "generate", "-m", model, *(word.replace("{m}", model) for word in argv), "x")
    assert code == 1
    assert re.search(why, err), err
