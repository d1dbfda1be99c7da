"""Tables made from results files: no digit of them, or of the sentences beside them, can be changed unseen."""

import json
import re
import shutil
from pathlib import Path

import pytest

from forerun.lab.claims.check import check, pin, remade

ROOT = Path(__file__).parents[3]
DECLARED = """
[forms]
range = "{value as .2f}x ({low as .2f} to {high as .2f})"

[[study]]
name = "code"
file = "domains.json"
at = "workloads.code.arms"
head = ["drafter", "speed-up", "drafting"]
rows = [["ngram:depth=8", '{"ngram:depth=8".draft_share as .1%}'], ["suffix", "-"]]
cells = ["`$1`", '{"$1".speedup as range}', "$2"]

[[study]]
name = "rows"
at = "points[rows=$1]"
head = ["rows", "ms"]
rows = [["1"], ["8"]]
cells = ["$1", "{curve.json: ms as .2f}"]
"""
BENCH = ("command", "date", "commit", "forerun", "python", "system", "processor", "cores", "load_average")
ARMS = {
    "ngram:depth=8": {"speedup": {"value": 2.3782, "low": 2.1044, "high": 2.6137}, "draft_share": 0.0342},
    "suffix": {"speedup": {"value": 2.7351, "low": 2.5003, "high": 2.9871}},
}
FIGURES = {
    "domains": {"workloads": {"code": {"arms": ARMS}}},
    "curve": {"points": [{"rows": 1, "ms": 3.3065}, {"rows": 8, "ms": 6.3712}], "never": None},
}
PAGE = """\
# Study

<!-- table: code -->
<!-- table end -->

`<!-- table: none -->` is text.

<!-- table: rows -->
old
<!-- table end -->
the end
"""
WHOLE = """\
# Study

<!-- table: code -->
| drafter | speed-up | drafting |
|---|---|---|
| `ngram:depth=8` | 2.38x (2.10 to 2.61) | 3.4% |
| `suffix` | 2.74x (2.50 to 2.99) | - |
<!-- table end -->

`<!-- table: none -->` is text.

<!-- table: rows -->
| rows | ms |
|---|---|
| 1 | 3.31 |
| 8 | 6.37 |
<!-- table end -->
the end
"""


@pytest.fixture
def study(tmp_path):
    """A page, its declarations and results, made and pinned."""
    results = tmp_path / "results"
    results.mkdir()
    answers = dict.fromkeys(("relative_to", "batch", "stack", "data", "shape"), "as said")
    for name, figures in FIGURES.items():
        whole = {"schema": 1, "experiment": name, "bench": dict.fromkeys(BENCH, 1), "answers": answers}
        (results / f"{name}.json").write_text(json.dumps(whole | {"figures": figures, "samples": [1]}))
    (tmp_path / "tables.toml").write_text(DECLARED)
    page = tmp_path / "study.md"
    page.write_text(PAGE)
    page.with_suffix(".claims").write_text("")
    assert remade([page], results) == [page]
    assert page.read_text() == WHOLE
    assert pin([page], results) == [page]
    return page


def faults(page):
    return list(map(str, check([page], page.parent / "results").faults))


def test_a_page_is_made_from_its_declarations(study):
    report = check([study], study.parent / "results")
    assert (report.faults, report.claims, report.results) == ((), 9, ("curve.json", "domains.json"))
    assert report.unmarked == (), "figures of a table need no claim"
    assert remade([study], study.parent / "results") == []
    assert study.read_text() == WHOLE, "runs are named beside it"
    assert study.with_suffix(".claims").read_text().count("<!-- run: ") == 2


def test_every_character_of_a_table_counts(study):
    for table in re.finditer(r"(?<=-->\n)\|.*?(?=<!-- table end)", WHOLE, re.S):
        for i in (i for i in range(*table.span()) if not WHOLE[i].isspace()):
            study.write_text(WHOLE[:i] + chr(ord(WHOLE[i]) ^ 1) + WHOLE[i + 1 :])
            (fault,) = faults(study)
            assert fault.startswith(f"{study}:{WHOLE.count(chr(10), 0, i) + 1}: table "), WHOLE[i - 9 : i + 9]


@pytest.mark.parametrize(
    ("true", "false", "said"),
    [
        ("| 8 | 6.37 |\n", "", "no row stands there, the files say '| 8 | 6.37 |'"),
        ("| 8 | 6.37 |\n", "| 8 | 6.37 |\n| 9 | 7 |\n", "'| 9 | 7 |' stands there, the files say no row"),
        ("<!-- table: rows -->", "<!-- table: row -->", "between marks: code, row; in tables.toml: code, rows"),
        ("<!-- table: rows -->\n", "", "each must be once in both"),
        ("<!-- table end -->\nthe end", "the end", "each must be once in both"),
        ("the end", "<!-- table: rows -->\n<!-- table end -->", "between marks: code, rows, rows"),
    ],
)
def test_marks_and_rows_must_be_there(study, true, false, said):
    assert WHOLE.count(true) == 1
    study.write_text(WHOLE.replace(true, false))
    (fault,) = faults(study)
    assert said in fault


@pytest.mark.parametrize(
    ("true", "false", "said"),
    [
        ("{curve.json: ms as .2f}", "{curve.json: never as .2f}", "unknown key"),
        ("points[rows=$1]", "points[rows=9]", "0 items at /figures.points"),
        ("points[rows=$1]", "points[rows=$2]", "asks for more than the row ['1'] has"),
        ("{curve.json: ms as .2f}", "{curve.json: @}", "is no single value"),
        ("{curve.json: ms as .2f}", "{curve.json: ms as .2q}", "cannot write 3.3065"),
        ("{curve.json: ms as .2f}", "{curve.json ms}", "has a place that cannot be read"),
        ("{curve.json: ms as .2f}", "{curves.json: ms as .2f}", "there is no results file"),
        ('head = ["rows", "ms"]', 'heads = ["rows", "ms"]', "cannot be read"),
        ("[forms]", "[forms", "cannot be read"),
    ],
)
def test_a_declaration_that_cannot_be_followed_is_one_fault(study, true, false, said):
    assert true in DECLARED
    study.with_name("tables.toml").write_text(DECLARED.replace(true, false))
    (fault,) = faults(study)
    assert said in fault


def test_a_file_of_a_table_that_was_measured_again_is_a_stale_run(study):
    path = study.parent / "results" / "curve.json"
    path.write_text(path.read_text() + " ")
    (fault,) = faults(study)
    assert "is about run" in fault
    study.with_suffix(".claims").write_text("")
    assert ["does not say which run" in fault for fault in faults(study)] == [True, True]


PLANTED = {  # a true figure of our pages, and a false one
    "a speed-up of a table": ("study", "4.54x (3.10", "4.45x (3.10"),
    "an end of an interval": ("study", "(2.97 to 7.32)", "(2.79 to 7.32)"),
    "a verdict": ("study", "0.88x (0.65 to 0.98), slower", "0.88x (0.65 to 0.98), no difference"),
    "a tau of a table": ("study", "; tau 5.44 |", "; tau 5.54 |"),
    "a count of answers": ("study", "448 of 448", "447 of 448"),
    "a percentage": ("study", "| +4.8% |", "| -4.8% |"),
    "what was advised": ("study", "| russian | `ngram:depth=12`", "| russian | `ngram:depth=15`"),
    "another row's figure": ("performance", "| 1.83 (1.57", "| 1.36 (1.57"),
    "a perplexity": ("performance", "23.612", "23.621"),
    "a tau of training": ("training", "tau 4.55, 4.58x", "tau 4.58, 4.55x"),
    "a figure of a sentence": ("study", "cost 2.26 times", "cost 2.62 times"),
    "a time of a sentence": ("performance", "16 rows take 16.5 ms", "16 rows take 15.6 ms"),
    "a sentence that is there twice": ("study", "rows cost 2.26 times one row at bf16.",
                                       "rows cost 2.26 times one row at bf16.\nrows cost 2.27 times one row at bf16."),
    "a sentence that is gone": ("measuring", "to see it on your machine", "on your machine"),
}  # fmt: skip


@pytest.mark.parametrize("planted", PLANTED)
def test_a_wrong_figure_of_our_pages_is_caught(planted, tmp_path):
    name, true, false = PLANTED[planted]
    page = tmp_path / f"{name}.md"
    for beside in (page.name, f"{name}.claims", "tables.toml"):
        shutil.copy(ROOT / "docs" / beside, tmp_path)
    text = page.read_text(encoding="utf-8")
    assert check([page], ROOT / "results").faults == ()
    assert len(re.findall(re.escape(true), text, re.I)) == 1
    page.write_text(re.sub(re.escape(true), lambda _: false, text, flags=re.I), encoding="utf-8")
    assert len(check([page], ROOT / "results").faults) == 1


@pytest.mark.parametrize("name", ["study", "training", "performance"])
def test_no_digit_of_a_table_of_our_pages_can_be_changed(name, tmp_path):
    page = tmp_path / f"{name}.md"
    for beside in (f"{name}.claims", "tables.toml"):
        shutil.copy(ROOT / "docs" / beside, tmp_path)
    lines = (ROOT / "docs" / page.name).read_text(encoding="utf-8").split("\n")
    inside, places = False, []
    for i, line in enumerate(lines):
        inside = line.startswith("<!-- table: ") or (inside and line != "<!-- table end -->")
        if inside and line.startswith("|"):
            places.append(i)
            lines[i] = re.sub(r"[0-9]", lambda digit: str((int(digit[0]) + 1) % 10), line)
    page.write_text("\n".join(lines), encoding="utf-8")
    found = {fault.line for fault in check([page], ROOT / "results").faults}
    assert found == {i + 1 for i in places if re.search("[0-9]", lines[i])}
    assert len(found) > 10
