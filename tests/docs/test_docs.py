"""The docs are true: their code runs, their links lead somewhere, their lists are whole, their generated parts current.

Blocks of a page run in order as one module, on a tiny model that stands in for smollm2.
"""

import dataclasses
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from argparse import Namespace
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

import forerun
from forerun.arch import FAMILIES
from forerun.cli.main import parser
from forerun.drafters import DRAFTERS
from forerun.drafters.specs import describe_drafters
from forerun.testing.tiny import Tiny, write_folder
from forerun.verify import VERIFIERS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (ROOT / "docs").glob("*.md")
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def blocks(page, language):
    return [match for match in FENCE.finditer(page.read_text(encoding="utf-8")) if match[1] == language]


def prose(page):
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def titled(page):
    return [pytest.param(p, id=p.name) for p in page]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("docs") / "tiny", Tiny(layers=3, max_len=4096))


@pytest.fixture
def stand_in(tiny, monkeypatch):
    """The tiny model instead of smollm2, and no traces of what a page registers."""
    from forerun.weights import pull

    real = pull.resolve

    def resolve(model):
        return tiny if model == "smollm2" else real(model)

    monkeypatch.setattr("forerun.weights.pull.resolve", resolve)
    monkeypatch.setattr("forerun.assemble.resolve", resolve)
    registries = (DRAFTERS, FAMILIES)
    before = [dict(registry) for registry in registries]
    yield
    for registry, entries in zip(registries, before, strict=True):
        registry.clear()
        registry.update(entries)


def run_file(path, name, monkeypatch):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", titled(page for page in PAGES if blocks(page, "python")))
def test_code_runs(page, stand_in, tmp_path, monkeypatch):
    text = page.read_text(encoding="utf-8")
    lines = [""] * text.count("\n")
    for block in blocks(page, "python"):
        first = text[: block.start(2)].count("\n")
        code = block[2].splitlines()
        lines[first : first + len(code)] = code  # a traceback names the page's own line
    file = tmp_path / f"{page.stem.lower().replace('-', '_')}_page.py"
    file.write_text("\n".join(lines), encoding="utf-8")
    run_file(file, file.stem, monkeypatch)


@pytest.mark.parametrize("example", titled(sorted((ROOT / "examples").glob("*.py"))))
def test_examples_run(example, stand_in, monkeypatch, capsys):
    module = run_file(example, f"{example.stem}_example", monkeypatch)
    if hasattr(module, "main"):
        module.main()
    assert capsys.readouterr().out


def test_the_page_and_the_example_show_one_drafter():
    page = blocks(ROOT / "docs" / "adding-a-drafter.md", "python")[0][2]
    drafter = page[page.index("@dataclass") :]
    assert drafter in (ROOT / "examples" / "own_drafter.py").read_text(encoding="utf-8")
    assert drafter.count("\n") <= 48


@pytest.mark.parametrize("page", titled(page for page in PAGES if blocks(page, "sh")))
def test_commands_exist(page):
    for block in blocks(page, "sh"):
        for line in block[2].splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["forerun"]:
                assert parser().parse_args(words[1:]).command == words[1], line
            elif words[:1] == ["make"]:
                assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M), line


def lab_lines(path, tmp_path):
    """What a shell script would start, with nothing started: every command's words."""
    calls = tmp_path / "calls"
    note = '() { printf \'%s\\n\' "$FUNCNAME" "$@" \'\' >> "$CALLS"; }'
    stand_ins = {f"BASH_FUNC_{name}%%": note for name in ("forerun", "python")}
    environment = {**os.environ, **stand_ins, "CALLS": str(calls)}
    subprocess.run(["bash", str(path)], check=True, capture_output=True, env=environment)
    return [call.splitlines() for call in calls.read_text(encoding="utf-8").split("\n\n") if call.strip()]


def test_the_study_is_made_of_commands_that_exist(tmp_path):
    study = ROOT / "scripts" / "study"
    subprocess.run(["bash", "-n", str(study)], check=True)
    experiments = set()
    for name, *words in lab_lines(study, tmp_path):
        if name == "forerun":
            args = parser().parse_args(words)
            assert args.command == "lab", words
            experiments.add(args.experiment)
        else:
            assert (ROOT / words[0]).is_file(), words
    wanted = {"curve", "domains", "phases", "shape", "batch", "context", "temperature", "weights", "lossless"}
    assert experiments >= wanted


@pytest.fixture
def of_script(monkeypatch):
    """A script of scripts/ as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))

    def load(name):
        loader = SourceFileLoader(f"{name}_script", str(ROOT / "scripts" / name))
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
        loader.exec_module(module)
        return module

    return load


def test_synthesis_is_measured_by_a_command_that_exists(of_script, tmp_path):
    module = of_script("bench_synthesis")
    given = Namespace(model="smollm2", tokens=100, answer_tokens=64, width=8)
    python, _, name, *words = module.command(given, "int8", tmp_path)
    assert (python, name) == (sys.executable, "forerun.cli.main")
    args = parser().parse_args(words)
    assert (args.command, args.kind, args.weights, args.width, args.tokens) == ("train", "corpus", "int8", 8, 100)
    assert "--tokens is a whole number" in script("bench_synthesis", "--tokens", "0").stderr


def test_the_noise_of_the_machine_is_measured_by_a_command_that_exists(of_script, tmp_path):
    module = of_script("bench_noise")
    python, _, name, *words = module.command(["ngram", "suffix:depth=4"], tmp_path / "x.json")
    assert (python, name) == (sys.executable, "forerun.cli.main")
    args = parser().parse_args(words)
    assert (args.experiment, args.drafter) == ("domains", ["ngram", "suffix:depth=4"])
    assert script("bench_noise", "--help").returncode == 0
    assert "--runs is a whole number" in script("bench_noise", "--runs", "0").stderr


def anchors(page):
    heads = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", titled(PAGES))
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)]+)\)", prose(page)):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(there), f"{page.name}: {link}"


@pytest.mark.parametrize("page", titled(PAGES))
def test_named_files_exist(page):
    for name in re.findall(r"`((?:tests|scripts|src|examples|docs)/[\w./-]+)`", page.read_text(encoding="utf-8")):
        assert (ROOT / name).exists(), f"{page.name}: {name}"


def section(page, title):
    text = page.read_text(encoding="utf-8")
    return re.split(r"^## ", text.partition(f"\n## {title}\n")[2], maxsplit=1, flags=re.M)[0]


def shown(default):
    """A default as the tables write it."""
    if default is None or isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default)


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_option_of_a_drafter_is_documented(name):
    page = ROOT / "docs" / "drafters.md"
    own, common = section(page, name), section(page, "What all of them understand")
    assert own, f"{name} has no section"
    plan = {"depth", "nodes", "width", "confidence", "up_to", "rows"}
    for option in describe_drafters()[name]["options"]:
        if option["name"] in plan:
            assert f"| `{option['name']}` |" in common, option
        else:
            row = re.search(rf"^\| `{option['name']}` \|([^|]*)\|", own, re.M)
            assert row, option
            assert row[1].strip(" `") == shown(option["default"]), option


def test_the_depths_of_plans_are_documented():
    page = section(ROOT / "docs" / "drafters.md", "What all of them understand")
    line = next(line for line in page.splitlines() if line.startswith("| `depth`"))
    for name, entry in describe_drafters().items():
        depth = [option["default"] for option in entry["options"] if option["name"] == "depth"]
        assert not depth or re.search(rf"{depth[0]} [^;|]*`{name}`", line), (name, depth)


@pytest.mark.parametrize("cls", [forerun.SamplingParams, forerun.Config], ids=lambda cls: cls.__name__)
def test_every_field_is_documented(cls):
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    for field in dataclasses.fields(cls):
        assert f"| `{field.name}` |" in page, field.name


def test_every_verifier_is_documented():
    page = ROOT / "docs" / "verification.md"
    for name, made in VERIFIERS.items():
        row = re.search(rf"^\| `{name}` \|[^|]*\|([^|]*)\|", page.read_text(encoding="utf-8"), re.M)
        assert row, name
        assert row[1].strip().startswith("yes") == made.lossless, name
        assert name == "reference" or section(page, name), name


def test_floors_are_those_of_the_contract():
    import tomllib

    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
    wanted = [{room.strip() for room in layer.split("|")} for layer in contract]
    for page, drawing in ((ROOT / "README.md", "cli  "), (ROOT / "docs" / "design.md", "10  ")):
        text = next(block[2] for block in blocks(page, "text") if block[2].startswith(drawing))
        rows = [set(re.findall(r"[a-z]+", line)) for line in text.splitlines()]
        assert len(rows) == len(wanted)
        assert all(floor <= row for floor, row in zip(wanted, rows, strict=True)), page.name


def script(name, *args):
    command = [sys.executable, str(ROOT / "scripts" / name), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["docs_cli", "docs_tables", "readme_table"])
def test_generated_parts_are_current(name):
    done = script(name, "--check")
    assert done.returncode == 0, done.stderr


BENCH = {
    "command": "python scripts/x --y", "date": "2026-01-02T03:04:05Z", "commit": "0123456789abcdef", "dirty": False,
    "forerun": "0.1", "torch": "2.9", "python": "3.12", "system": "Linux", "processor": "A Processor", "cores": 2,
    "threads": 2, "load_average": [0.1, 0.1, 0.1], "runtime": "native", "formats": {"q4_1": 210},
}  # fmt: skip
ANSWERS = dict.fromkeys(("relative_to", "batch", "stack", "data", "shape"), "said")
ARM = {
    "ms_per_token": 18.0, "speedup": {"value": 1.619, "low": 1.4, "high": 1.8, "of": 12}, "verdict": "faster",
    "same_text": 12, "answers": 12,
}  # fmt: skip
COUNTS = {"drafters": 5, "same": 100, "of": 100, "drafted": 2000, "accepted": 1000, "tokens": 4800}
SPREAD = {"median": 2.125, "lowest": 2.0, "highest": 2.25}
POINT = {"rows": 1, "batch": 1, "context": 256, "ms": 4.56, "over_first": 1.0}
STEP = {"outside_ms_per_step": 0.404, "step_ms": 5.0, "split": {"step_ms": 6.0}}
RESULTS = {
    "domains": {"workloads": {"code": {"arms": {"plain": ARM, "ngram": ARM, "bare": ARM}}}},
    "lossless": {"identity": {"together": {"greedy": COUNTS}}},
    "phases": {"workloads": {"code": {"plain": STEP, "drafters": {"ngram": STEP}}}},
    "memory": {
        "model": "m", "context": 2048,
        "native int8": {
            "peak_mb": 1234.5, "weights_mb": 135.0, "kv_mb": 47.0, "over_mb": 300.0, "command_to_first_token_s": 1.5,
        },
    },
    "peers": {"rounds": 9, "spread": {"llama.cpp/int8": SPREAD}},
    "perplexity": {"tokens": 4096, "formats": {"int8": {"perplexity": 23.779, "over_f32": 0.0081}}},
    "curve": {
        "model": "m", "formats": {"int8": 121}, "bandwidth_share": 0.83,
        "points": [POINT, {**POINT, "rows": 8, "over_first": 1.28}],
    },
    "noise": {"inside": 9, "of": 10, "lowest": 0.981, "highest": 1.042},
}  # fmt: skip
FIGURES = ("1.62x", "100 of 100", "0.40 ms", "1,234 MB", "2.12x", "23.779", "1.28x for 8 rows", "9 of 10")


@pytest.mark.parametrize("missing", [None, *RESULTS])
def test_the_table_has_what_the_files_have_and_a_wrong_figure_is_seen(tmp_path, missing):
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- table:begin -->\nold\n<!-- table:end -->\nafter\n")
    for name, figures in RESULTS.items():
        if name != missing:
            whole = {"schema": 1, "experiment": name, "bench": BENCH, "answers": ANSWERS, "figures": figures}
            (tmp_path / f"{name}.json").write_text(json.dumps({**whole, "samples": [1]}))
    files = ("--results", tmp_path, "--readme", readme)
    assert script("readme_table", "--check", *files).returncode == 1
    assert script("readme_table", *files).returncode == 0
    assert script("readme_table", "--check", *files).returncode == 0
    text = readme.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    for name, figure in zip(RESULTS, FIGURES, strict=True):
        assert (figure in text) == (f"`{name}.json`: A Processor" in text) == (name != missing)
    assert "`python scripts/x --y`" in text
    assert "<!--" not in text.partition("<!-- table:begin -->")[2].partition("<!-- table:end -->")[0]
    for figure in FIGURES if missing is None else ():
        digit = re.search(r"\d", figure)[0]
        readme.write_text(text.replace(figure, figure.replace(digit, str((int(digit) + 1) % 10), 1)))
        assert script("readme_table", "--check", *files).returncode == 1, figure


def test_every_claim_of_the_docs_holds():
    """What `forerun lab check README.md docs/*.md` says; it finds its claims, or the README has no tables."""
    from forerun.lab.claims.check import check

    report = check(PAGES, ROOT / "results")
    assert not report.faults, "\n".join(map(str, report.faults))
    assert report.claims > 100
