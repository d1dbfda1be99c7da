"""Where the page's script puts boxes; run by node, and skipped where there is none."""

import json
import shutil
import subprocess
from importlib.resources import files

import pytest

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")
TOKENS = [" the", "sea", "日本語日本語日本語日本語", "x" * 40, "   ", ""]


def run(expression, **names):
    source = files("forerun.lab.trace").joinpath("layout.js").read_text(encoding="utf-8")
    given = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in names.items())
    code = f"{source}\n{given}console.log(JSON.stringify({expression}));"
    done = subprocess.run([NODE, "-"], input=code, capture_output=True, text=True, check=True, encoding="utf-8")
    return json.loads(done.stdout)


def step(parents, path, bonus=True):
    nodes = [[i % len(TOKENS), parent, None if i == 0 else 0.5, None, None, 0 if i in path else 1] for i, parent in
             enumerate(parents)]  # fmt: skip
    return {
        "nodes": nodes,
        "path": path,
        "bonus": [1, 0.25] if bonus else None,
        "gain": len(path) + bonus,
        "guessed": len(parents) - 1,
        "stood": len(path),
        "ms": {},
        "rows": {},
    }


TREES = [
    step([-1], []),
    step([-1, 0, 1, 2, 3], [1, 2]),
    step([-1, 0, 0, 0, 1, 1, 2, 5, 5, 3], [2, 6]),
    step([-1, 0, 0, 1], [2], bonus=False),
    step([-1, *range(255)], list(range(1, 256))),
]


def test_boxes_do_not_overlap_and_what_was_gained_is_the_top_row():
    for tree, found in zip(
        TREES, run("trees.map(tree => layout(tree, tokens))", trees=TREES, tokens=TOKENS), strict=True
    ):
        boxes, bonus = found["boxes"], len(tree["nodes"])
        assert len(boxes) == bonus + (tree["bonus"] is not None)
        assert len({(box["depth"], box["row"]) for box in boxes}) == len(boxes)
        for box in boxes:
            assert box["x"] >= 0
            assert box["x"] + box["w"] <= found["width"]
            assert box["y"] + 28 <= found["height"] + 12
        for line in found["lines"]:
            parent, child = boxes[line["from"]], boxes[line["to"]]
            assert parent["x"] + parent["w"] < child["x"]
            assert parent["row"] <= child["row"]
        assert len(found["lines"]) == len(boxes) - 1
        top = [box["i"] for box in sorted(boxes, key=lambda box: box["x"]) if box["row"] == 0]
        gained = [0, *tree["path"], *([bonus] if tree["bonus"] else [])]
        assert top[: len(gained)] == gained
        assert sum(line["on"] for line in found["lines"]) == len(gained) - 1


def test_labels_are_short_and_spaces_can_be_seen():
    found = run("tokens.map(label)", tokens=TOKENS)
    assert found[0] == "␣the"
    assert found[4] == "␣␣␣"
    assert found[5] == ""
    assert max(run("tokens.map(label).map(cells)", tokens=TOKENS)) <= 20
    assert found[2].endswith("…")


def test_what_the_target_took_instead_is_found():
    tree = TREES[2]
    assert run("[0, 2, 6].map(node => nextAfter(step, node))", step=tree) == [[2, 0.5], [0, 0.5], [1, 0.25]]


def test_the_whole_script_is_one_that_node_can_read(tmp_path):
    script = "".join(files("forerun.lab.trace").joinpath(name).read_text("utf-8") for name in ("layout.js", "trace.js"))
    (tmp_path / "page.js").write_text(script, encoding="utf-8")
    done = subprocess.run([NODE, "--check", tmp_path / "page.js"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
