"""docs/failures.md tells the truth: its tests exist, its cases stand once and in order."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\d+) \| (.+?) \| (.+?) \|$", PAGE, re.M)
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


def named_in(path):
    """Names of the test functions in a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test")}


@pytest.mark.parametrize("path", sorted({path for path, _ in NAMED}))
def test_every_named_test_exists(path):
    assert {name for at, name in NAMED if at == path} <= named_in(path)


def test_every_case_stands_once_and_says_where_it_is_tested_or_what_it_waits_for():
    assert len(ROWS) > 100
    assert len({number for number, _, _ in ROWS}) == len(ROWS)
    for _, _, where in ROWS:
        assert re.fullmatch(r"`tests/[^`]+`(, `tests/[^`]+`)*|server|lab|control|heads", where), where
    for section in PAGE.split("\n## ")[1:]:
        numbers = [int(number) for number in re.findall(r"^\| (\d+) \|", section, re.M)]
        assert numbers == sorted(numbers)


def test_every_test_that_names_a_case_is_of_a_case_on_the_page():
    known = {int(number) for number, _, _ in ROWS}
    for path in (ROOT / "tests").rglob("test_*.py"):
        for name in named_in(path):
            match = re.match(r"test_(?:case_)?((?:\d+_)+)", name)
            numbers = {int(number) for number in match[1].strip("_").split("_")} if match else set()
            assert numbers <= known, f"{path.name}::{name}"
