"""`lab check`: a true text passes, and each of many planted errors is caught in its line."""

import argparse
import hashlib
import json
import re

import pytest

from forerun.cli.lab import check as command
from forerun.cli.tell import add_common
from forerun.core.errors import SpecError
from forerun.lab.claims.check import check, part, pin

BENCH = ("command", "date", "commit", "forerun", "python", "system", "processor", "cores", "load_average")


def result(experiment, figures):
    bench = {name: name for name in BENCH} | {"command": "forerun lab domains", "cores": 2}
    answers = dict.fromkeys(("relative_to", "batch", "stack", "data", "shape"), "as said")
    return {
        "schema": 1, "experiment": experiment, "bench": bench, "answers": answers, "figures": figures, "samples": [1]
    }  # fmt: skip


DOMAINS = {
    "workloads": {
        "code": {
            "arms": {
                "ngram:depth=8": {
                    "speedup": {"value": 2.3782, "low": 2.1044, "high": 2.6137, "of": 24},
                    "draft_share": 0.0342,
                    "verdict": "faster",
                    "text": {"same": 24, "of": 24, "identical": True},
                },
                "suffix": {"speedup": {"value": 2.7351, "low": 2.5003, "high": 2.9871, "of": 24}},
            },
            "ms_per_token": 4.7152,
            "first_s": 0.0123,
            "over_bf16": -0.0215,
        },
        "dialogue": {
            "arms": {"ngram:depth=8": {"speedup": {"value": 1.0149, "low": 0.9871, "high": 1.0432, "of": 24}}}
        },
    },
    "tokens": 12345,
    "peak_bytes": 135_200_000,
}
CURVE = {"points": [{"rows": 1, "ms": 3.3065}, {"rows": 8, "ms": 6.3712}], "never": None}

TRUE = """\
# A study

On code, ngram is **2.38x**<!-- domains.json: workloads.code.arms."ngram:depth=8".speedup.value --> as fast
(2.10<!-- domains.json: workloads.code.arms."ngram:depth=8".speedup.low -->
to 2.61<!-- domains.json: workloads.code.arms."ngram:depth=8".speedup.high -->), which is faster<!-- domains.json:
workloads.code.arms."ngram:depth=8".verdict -->: 24<!-- domains.json: workloads.code.arms."ngram:depth=8".text.same -->
of 24<!-- domains.json: workloads.code.arms."ngram:depth=8".text.of --> texts are the same
(yes<!-- domains.json: workloads.code.arms."ngram:depth=8".text.identical -->).

| what | figure |
|---|---:|
| suffix | 2.74x<!-- domains.json: workloads.code.arms.suffix.speedup.value --> |
| dialogue | 1.01x<!-- domains.json: workloads.dialogue.arms."ngram:depth=8".speedup.value --> |
| drafting | 3.4%<!-- domains.json: workloads.code.arms."ngram:depth=8".draft_share --> |
| plain | 4.72 ms/token<!-- domains.json: workloads.code.ms_per_token --> |
| first token | 12.3 ms<!-- domains.json: workloads.code.first_s --> |
| against bf16 | -2.2%<!-- domains.json: workloads.code.over_bf16 --> |
| tokens | 12,345<!-- domains.json: tokens --> |
| memory | 135 MB<!-- domains.json: peak_bytes --> |
| cores | 2<!-- domains.json: /bench.cores --> |

A forward of 8 rows takes 6.37<!-- curve.json: points[rows=8].ms --> ms. This one is code, not a claim:
`9.99x<!-- domains.json: tokens -->`

<!-- run: domains.json DIGEST1 -->
<!-- run: curve.json DIGEST2 -->
"""
CLAIMS = 17

ERRORS = {  # what is planted: (true, false, what is said, line of it)
    "digits swapped": ("2.38x", "2.83x", "claims 2.83x, RESULTS/domains.json", 3),
    "one digit off": ("6.37<", "6.38<", "is 6.37 (in the file: 6.3712)", 22),
    "rounded down": ("2.38x", "2.37x", "is 2.38", 3),
    "wrong file": ("<!-- curve.json: p", "<!-- domains.json: p", "unknown key at /figures", 22),
    "a file that is not there": ("<!-- curve.json: p", "<!-- curves.json: p", "there is no results file", 22),
    "another row": ("points[rows=8]", "points[rows=1]", "is 3.31", 22),
    "a row that is not there": ("points[rows=8]", "points[rows=4]", "rows: 1, 8", 22),
    "another arm's value": ("2.74x", "2.38x", "is 2.74", 12),
    "another workload's value": ("1.01x", "2.38x", "is 1.01", 13),
    "ends of an interval swapped": ("2.10<", "2.61<", "is 2.10", 4),
    "seconds for milliseconds": ("12.3 ms", "12.3 s", "is 0.0", 16),
    "the file's seconds called ms": ("12.3 ms", "0.0123 ms", "is 12.3", 16),
    "wrong unit": ("4.72 ms/token", "4.72x", "unit differs", 15),
    "per step, not per token": ("4.72 ms/token", "4.72 ms/step", "unit differs", 15),
    "per token where the file says nothing of tokens": ("12.3 ms", "12.3 ms/token", "unit differs", 16),
    "a share per step": ("3.4%", "3.4% per step", "unit differs", 14),
    "a row that no number is": ("points[rows=8]", "points[rows=1/0]", "0 items", 22),
    "a row too large to be computed": ("points[rows=8]", "points[rows=1e999999999]", "0 items", 22),
    "a size called a rate": ("135 MB", "135 MB/s", "unit differs", 19),
    "mebibytes called megabytes": ("135 MB", "129 MB", "is 135", 19),
    "wrong sign": ("-2.2%", "2.2%", "is -2.1", 17),
    "a percentage as fraction": ("3.4%", "0.034%", "is 3.420", 14),
    "a percentage without its sign": ("3.4%", "3.4", "is 0.0", 14),
    "thousands in the wrong place": ("12,345", "123,45", "is no number", 18),
    "thousands as decimals": ("12,345", "12.345", "is 12,345", 18),
    "rounded to tens": ("12,345", "12,350", "is 12,345", 18),
    "too few the same": ("24<!-- domains.json: workloads.code.arms.\"ngram:depth=8\".text.same",
                         "25<!-- domains.json: workloads.code.arms.\"ngram:depth=8\".text.same", "is 24", 6),
    "another verdict": ("which is faster<", "which is slower<", "is the text 'faster'", 5),
    "no for yes": ("(yes<", "(no<", "is yes", 8),
    "a key that is not there": ("first_s -->", "frist_s -->", "did you mean 'first_s'", 16),
    "nothing measured": ("points[rows=8].ms", "never", "null", 22),
    "a table for a value": ("points[rows=8].ms", "points", "no single value", 22),
    "a space before the claim": ("2.38x**<", "2.38x** <", "no number right before", 3),
    "no colon": ("345<!-- domains.json: t", "345<!-- domains.json t", "cannot be read", 18),
    "no such file ending": ("345<!-- domains.json: t", "345<!-- domains: t", "cannot be read", 18),
    "another core count": ("| 2<", "| 4<", "is 2", 20),
    "stale run": ("<!-- run: domains.json ", "<!-- run: domains.json 00000000 -->\n<!-- ", "is about run 00000000", 25),
    "no run named": ("<!-- run: curve.json ", "<!-- ran: curve ", "does not say which run", 22),
    "a run named twice": ("\n\n<!-- run: domains.json DIGEST1 -->", "\n\n" + 2 * "<!-- run: domains.json DIGEST1 -->",
                          "again", 25),
}  # fmt: skip


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "domains.json").write_text(json.dumps(result("domains", DOMAINS)))
    (folder / "curve.json").write_text(json.dumps(result("curve", CURVE)))
    return folder


def pinned(text, results):
    for mark, name in (("DIGEST1", "domains.json"), ("DIGEST2", "curve.json")):
        text = text.replace(mark, hashlib.sha256((results / name).read_bytes()).hexdigest()[:8])
    return text


def write(folder, text, name="study.md"):
    path = folder / name
    path.write_bytes(text.encode())
    return path


def test_the_true_text_passes(results, tmp_path):
    report = check([write(tmp_path, pinned(TRUE, results))], results)
    assert report.faults == ()
    assert (report.claims, report.results) == (CLAIMS, ("curve.json", "domains.json"))
    assert report.unmarked == ()


@pytest.mark.parametrize("error", ERRORS)
def test_a_planted_error_is_caught(error, results, tmp_path):
    true, false, said, line = ERRORS[error]
    assert TRUE.count(true) == 1
    path = write(tmp_path, pinned(TRUE.replace(true, false), results))
    faults = check([path], results).faults
    wanted = said.replace("RESULTS", str(results))
    assert [fault.line for fault in faults if wanted in str(fault)] == [line], list(map(str, faults))
    assert str(faults[0]).startswith(f"{path}:")


def test_no_digit_of_a_true_text_can_be_changed(results, tmp_path):
    text = pinned(TRUE, results)
    figures = list(re.finditer(r"(?<![`0-9.,])[0-9][0-9.,]*(?=[^0-9<|\n]{0,9}<!-- (?!run))", text))
    places = [i for match in figures for i in range(*match.span()) if text[i].isdigit()]
    assert len(figures) == CLAIMS - 2  # those are words
    for i in places:
        false = text[:i] + str((int(text[i]) + 1) % 10) + text[i + 1 :]
        faults = check([write(tmp_path, false)], results).faults
        assert [fault.line for fault in faults] == [text.count("\n", 0, i) + 1]


def test_claims_beside_a_page_hold_it_as_strictly(results, tmp_path):
    path = write(tmp_path, pinned(TRUE, results))
    assert part([path]) == [path]
    page, beside = path.read_text(), path.with_suffix(".claims")
    assert page.count("<!--") == 1, "the one that is code"
    assert "2.38" not in beside.read_text()
    assert (check([path], results).faults, check([path], results).claims) == ((), CLAIMS)
    assert part([path]) == [path]
    assert path.read_text() == page
    places = [i for i, char in enumerate(page) if char.isdigit() and "`" not in page[page.rfind("\n", 0, i) : i]]
    assert len(places) > 2 * CLAIMS
    for i in places:
        write(tmp_path, page[:i] + str((int(page[i]) + 1) % 10) + page[i + 1 :])
        assert check([path], results).faults, page[i - 20 : i + 9]
    write(tmp_path, page.replace("| cores | 2 |\n", ""))
    assert "no line of the page is, in this order, '| cores | {} |'" in str(check([path], results).faults[0])


def test_runs_are_named_beside_a_page(results, tmp_path):
    path = write(tmp_path, pinned(TRUE, results))
    part([path])
    page, before = path.read_text(), path.with_suffix(".claims").read_text()
    (results / "domains.json").write_text(json.dumps(result("domains", DOMAINS)) + " ")
    assert [fault.pin for fault in check([path], results).faults] == [True]
    assert pin([path], results) == [path]
    assert check([path], results).faults == ()
    assert path.read_text() == page
    assert path.with_suffix(".claims").read_text() != before


def test_a_file_measured_again_is_a_stale_run_though_its_figures_are_the_same(results, tmp_path):
    path = write(tmp_path, pinned(TRUE, results))
    again = result("domains", DOMAINS)
    again["bench"]["date"] = "later"
    (results / "domains.json").write_text(json.dumps(again))
    (fault,) = check([path], results).faults
    assert (fault.line, fault.pin) == (25, True)
    assert "is about run" in fault.what


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (json.dumps(result("domains", DOMAINS) | {"schema": 2}), "schema 2"),
        (json.dumps({"bench": {}, "figures": DOMAINS}), "schema None"),
        ("{", "cannot be read"),
        ("[]", "schema"),
    ],
)
def test_a_results_file_that_cannot_be_used_is_one_fault(content, said, results, tmp_path):
    path = write(tmp_path, pinned(TRUE, results))
    (results / "domains.json").write_text(content)
    (fault,) = check([path], results).faults
    assert said in fault.what
    assert fault.line == 3


def test_texts_that_cannot_be_read_do_not_hide_others(results, tmp_path):
    bad = tmp_path / "bad.md"
    bad.write_bytes(b"\xff")
    wrong = write(tmp_path, pinned(TRUE.replace("2.38x", "2.39x"), results))
    faults = check([tmp_path / "none.md", bad, wrong], results).faults
    assert [fault.line for fault in faults] == [0, 0, 3]
    assert "No such file" in str(faults[0])
    assert "UTF-8" in str(faults[1])
    with pytest.raises(SpecError, match="--results"):
        check([wrong], tmp_path / "nowhere")


def page(results):
    verdict = "workloads.code.arms.&quot;ngram:depth=8&quot;.verdict"
    cells = [
        '<data value="0.0123" data-claim="domains.json: workloads.code.first_s">12.3 ms</data>',
        '<data value="12345" data-claim="domains.json: tokens">12,345</data>',
        f'<data value="faster" data-claim="domains.json: {verdict}">faster</data>',
        '<data value="6.3712" data-claim="curve.json: points[1].ms">6.37</data>',
    ]
    rows = "\n".join(f"<tr><td>{cell}</td></tr>" for cell in cells)
    return f"<html><body>\n<table>\n{rows}\n</table>\n</body></html>\n"


@pytest.mark.parametrize(
    ("true", "false", "said"),
    [
        (">12.3 ms<", ">12.4 ms<", "is 12.3"),
        (">12,345<", ">12,<b>3</b>54<", "is 12,345"),
        ('value="0.0123"', 'value="0.0124"', "has value="),
        (">faster<", ">not faster<", "is the text 'faster'"),
        ("points[1]", "points[0]", "is 3.3065"),
        ("</data>", "</dta>", "has no end tag"),
    ],
)
def test_pages_are_checked_like_texts(true, false, said, results, tmp_path):
    path = write(tmp_path, page(results), "report.html")
    assert pin([path], results) == [path]
    assert check([path], results).faults == ()
    assert path.read_text().endswith("-->\n</body></html>\n")
    path.write_text(path.read_text().replace(true, false, 1))
    faults = check([path], results).faults
    assert any(said in fault.what for fault in faults), list(map(str, faults))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_runs_are_named_and_named_again(end, results, tmp_path):
    bare = re.sub(r"<!-- run.*\n", "", TRUE).replace("\n", end)
    path = write(tmp_path, bare)
    assert [fault.pin for fault in check([path], results).faults] == [True, True]
    assert pin([path], results) == [path]
    assert check([path], results).faults == ()
    assert pin([path], results) == []
    lines = path.read_bytes().decode()
    assert lines.count("\n") == lines.count(end)
    assert lines.startswith(bare.rstrip("\r\n"))

    (results / "curve.json").write_text(json.dumps(result("curve", CURVE), indent=1))
    twice = lines + lines[lines.index("<!-- run") :]
    assert pin([write(tmp_path, twice)], results) == [path]
    assert check([path], results).faults == ()
    assert path.read_bytes().decode().count("<!-- run:") == 2


def test_no_run_is_named_while_a_claim_is_wrong(results, tmp_path):
    text = TRUE.replace("2.38x", "2.39x")
    path = write(tmp_path, text)
    with pytest.raises(SpecError, match=r"2\.39x"):
        pin([path], results)
    assert path.read_text() == text


def run(capsys, *argv):
    parser = argparse.ArgumentParser()
    add_common(parser)
    command.add(parser)
    words = [str(arg) for arg in argv]
    status = command.run(parser.parse_args(words))
    out, err = capsys.readouterr()
    assert command.run(parser.parse_args([*words, "--json"])) == status
    return status, out.splitlines(), json.loads(capsys.readouterr().out), err


def test_the_command_says_what_it_found(capsys, results, tmp_path):
    true = write(tmp_path, pinned(TRUE, results))
    status, lines, found, _ = run(capsys, true, "--results", results)
    assert (status, lines) == (0, [f"{CLAIMS} claims of 1 text agree with 2 results files"])
    assert found == {
        "texts": 1, "claims": CLAIMS, "results": ["curve.json", "domains.json"], "faults": [], "unmarked": 0
    }  # fmt: skip

    false = write(tmp_path, pinned(TRUE.replace("2.38x", "2.39x"), results) + "\nand 3x more\n", "false.md")
    status, lines, found, _ = run(capsys, true, false, "--results", results)
    assert status == 1
    (line,) = lines
    where = f'{results}/domains.json workloads.code.arms."ngram:depth=8".speedup.value'
    assert line == f"{false}:3: claims 2.39x, {where} is 2.38 (in the file: 2.3782)"
    assert found["faults"] == lines


def test_strictly_every_figure_carries_a_claim(capsys, results, tmp_path):
    path = write(tmp_path, "It is 3x faster and takes `5 ms`.\n")
    assert run(capsys, path, "--results", results)[0] == 0
    status, lines, _, _ = run(capsys, path, "--results", results, "--strict")
    assert (status, lines) == (1, [f"{path}:1: 3x carries no claim"])


def test_the_command_names_runs_only_if_all_is_well(capsys, results, tmp_path):
    path = write(tmp_path, TRUE.replace("DIGEST1", "01234567").replace("DIGEST2", "89abcdef"))
    assert run(capsys, path, "--results", results)[0] == 1
    status, _, _, err = run(capsys, path, "--results", results, "--pin")
    assert status == 0
    assert "runs named in" in err
    assert path.read_text() == pinned(TRUE, results)
    path.write_text(TRUE.replace("DIGEST1", "01234567").replace("6.37<", "6.39<"))
    status, lines, _, err = run(capsys, path, "--results", results, "--pin")
    assert status == 1
    assert len(lines) == 4  # a stale run, a digit, a pin that cannot be read, and so a file without one
    assert "before all claims agree" in err
