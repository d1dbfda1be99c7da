"""Results files, made up but of the form that experiments write."""

import json

import pytest

BENCH = {
    "command": "forerun lab domains --out results/domains.json",
    "date": "2026-01-02T03:04:05Z",
    "commit": "0123456789abcdef0123",
    "dirty": False,
    "forerun": "0.1.0",
    "python": "3.11.7",
    "system": "Linux",
    "processor": "Some CPU",
    "cores": 4,
    "load_average": [0.5, 0.4, 0.3],
    "model": "tiny",
    "fingerprint": "00ff",
}
ARM = {
    "prompts": 12, "ms_per_token": 4.5, "verdict": "faster", "tau": 2.5, "acceptance": 0.5, "drafted": 1200,
    "acceptance_by_position": [], "speedup_answer": {"value": 2.0, "low": 1.9, "high": 2.1, "of": 12},
    "draft_share": 0.1, "same_text": 12, "answers": 12, "speedup": {"value": 2.25, "low": 2.0, "high": 2.5, "of": 12},
}  # fmt: skip
QUIET = {"value": 1.0, "low": 0.99, "high": 1.01, "of": 12, "calm": True}
FIGURES = {
    "workloads": {"code": {"prompts": 12, "noise": QUIET, "arms": {"plain": ARM, "ngram": ARM}}},
    "noise": QUIET,
    "memory_mb": {},
    "left_out": [],
}
ANSWERS = {"relative_to": "plain decoding", "batch": "1", "stack": "tiny, native", "data": "code", "shape": "ngram"}


@pytest.fixture
def results(tmp_path):
    """Writes a results file `NAME.json` of `domains`, with changes to its bench, figures and the whole."""

    def write(name="domains", bench=None, figures=None, answers=None, **changes):
        path = tmp_path / f"{name}.json"
        whole = {
            "schema": 1,
            "experiment": "domains",
            "bench": {**BENCH, **(bench or {})},
            "answers": {**ANSWERS, **(answers or {})},
            "figures": {**FIGURES, **(figures or {})},
            "samples": [{}],
        }
        path.write_text(json.dumps({**whole, **changes}))
        return path

    return write
