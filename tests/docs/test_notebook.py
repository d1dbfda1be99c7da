"""The example notebook runs from top to bottom, in a kernel of its own, on a tiny model."""

import json
import os
from pathlib import Path

import pytest

from forerun.testing.tiny import Tiny, write_folder

NOTEBOOK = Path(__file__).parents[2] / "examples" / "measure_your_own.ipynb"
SETTINGS = 'MODEL = "smollm2"\nPROMPTS = "dialogue"'
SIZES = "COUNT, TOKENS, SECONDS = 12, 96, 45.0"


@pytest.mark.timeout(280)
def test_the_whole_study_by_changing_two_lines(tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    model = write_folder(tmp_path / "tiny", Tiny(layers=3, max_len=4096))
    prompts = tmp_path / "mine.jsonl"
    texts = ("one two one two one", "the sea was the sea was", "a b a b a b a", "red red red red")
    prompts.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    book = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in book.cells), "the notebook is kept without outputs"
    for cell in book.cells:
        cell.source = cell.source.replace(SETTINGS, f"MODEL = {str(model)!r}\nPROMPTS = {str(prompts)!r}")
        cell.source = cell.source.replace(SIZES, "COUNT, TOKENS, SECONDS = 4, 12, 2.0")
    whole = "\n".join(cell.source for cell in book.cells)
    assert str(model) in whole
    assert "SECONDS = 4, 12, 2.0" in whole
    monkeypatch.setitem(os.environ, "OMP_WAIT_POLICY", "PASSIVE")
    nbclient.NotebookClient(
        book, timeout=200, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    shown = [output for cell in book.cells for output in cell.get("outputs", [])]
    pages = [output.data["text/html"] for output in shown if "text/html" in output.get("data", {})]
    assert len(pages) == 5
    assert all("<table>" in page for page in pages)
    assert sum("<svg" in page for page in pages) >= 4
    assert "speculate" in pages[-1]
    printed = "".join(output.text for output in shown if output.output_type == "stream" and output.name == "stdout")
    assert "runtime" in printed
