"""From figures to a verdict: each way of breaking, and each way of proving nothing."""

import copy

import pytest

from forerun.lab.lossless.findings import findings, overall
from forerun.lab.lossless.show import view
from forerun.lab.views import spoken

TOKEN = {"id": 1, "text": "a"}
ARM = {"same": 3, "of": 3, "tokens": 9, "drafted": 8, "accepted": 4, "divergences": []}
GOOD = {
    "runtime": "native",
    "dtype": "float32",
    "left_out": [],
    "identity": {
        "arms": {
            "plain again": {"greedy": {**ARM, "drafted": 0, "accepted": 0}},
            "ngram": {"greedy": ARM},
        },
        "excluded": {},
    },
    "rows": {
        "arms": {
            "ngram": {
                "pure": {"compared": 9, "equal": 9, "largest": 0.0, "drafted": 5, "accepted": 2, "differences": []}
            }
        }
    },
    "exact": {
        "limit": 1e-12, "cases": 1, "runs": 9, "largest_deviation": 1e-16,
        "verifiers": {"auto": {"cases": 1, "largest_deviation": 1e-16, "accepted": 0.5}},
        "planted": {"odds": {"deviation": 0.1, "caught": True}},
    },
    "sampled": {
        "level": 0.01, "answers": 9, "prompts": 1, "tokens": 4,
        "arms": {
            "plain again": {"pvalue": 0.5, "by_prompt": {"p": 0.5}, "drafted": 0, "accepted": 0},
            "ngram": {
                "pvalue": 0.2, "holm": 0.2, "promises_text": True, "by_prompt": {"p": 0.2}, "drafted": 5, "accepted": 2
            },
            "planted: typical": {"pvalue": 0.001, "by_prompt": {"p": 0.001}, "drafted": 5, "accepted": 5},
        },
        "toy": {
            "plain": {"tests": 9, "distance": 0.1, "pvalue": 0.5, "below_0.05": 0.0},
            "speculative": {"tests": 9, "distance": 0.1, "pvalue": 0.5, "below_0.05": 0.0},
            "typical": {"tests": 9, "distance": 0.9, "pvalue": 0.0, "below_0.05": 0.9},
        },
        "calibration": None,
    },
}  # fmt: skip


def changed(*path, value):
    figures = copy.deepcopy(GOOD)
    place = figures
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return figures


def divergence(near):
    margin = {"near_tie": near, "logits": 1e-5, "decided": 1e-5}
    return {"prompt": "w/p", "position": 2, "plain": TOKEN, "drafted": None, **margin}


def test_a_good_run_is_lossless_and_shows_all_parts():
    assert overall(findings(GOOD)) == "lossless"
    said = spoken(view({"verdict": "lossless", "findings": [], **GOOD}))
    for part in ("identity:", "rows:", "exact:", "sampled:", "verdict: lossless", "odds by 0.1"):
        assert part in said
    only = {"verdict": "lossless", "findings": [], "exact": GOOD["exact"]}
    assert "identity" not in spoken(view(only))


@pytest.mark.parametrize(
    ("path", "value", "verdict"),
    [
        (
            ("identity", "arms", "ngram", "greedy", "divergences"),
            [divergence(False)],
            "broken: identity: ngram, greedy",
        ),
        (("identity", "arms", "ngram", "greedy", "divergences"), [divergence(True)], "broken"),  # native rounds nothing
        (("identity", "arms", "ngram", "greedy", "accepted"), 0, "unproven: identity: ngram: proves nothing"),
        (("identity", "arms", "ngram", "greedy", "drafted"), 0, "unproven"),
        (("rows", "arms", "ngram", "pure", "equal"), 8, "broken: rows: ngram, pure: 1 of 9 rows differ"),
        (("rows", "arms", "ngram", "pure", "accepted"), 0, "unproven: rows"),
        (("exact", "verifiers", "auto", "largest_deviation"), 1e-9, "broken: exact: verifier auto deviates by 1e-09"),
        (("exact", "verifiers", "auto", "accepted"), 0.0, "unproven: exact"),
        (("exact", "planted", "odds", "caught"), False, "unproven: exact: the planted fault 'odds'"),
        (("sampled", "arms", "ngram", "holm"), 0.001, "broken: sampled: ngram: another distribution"),
        (("sampled", "arms", "plain again", "pvalue"), 1e-4, "unproven: sampled: plain decoding"),
        (("sampled", "arms", "planted: typical", "pvalue"), 0.2, "unproven: sampled: the planted lossy rule"),
        (("sampled", "toy", "plain", "pvalue"), 1e-5, "unproven: sampled: toy plain"),
        (("sampled", "toy", "typical", "below_0.05"), 0.1, "unproven: sampled: the test does not see"),
        (("sampled", "calibration"), {"tests": 9, "distance": 0.9, "pvalue": 1e-6, "below_0.05": 1.0}, "unproven"),
    ],
)
def test_what_breaks_and_what_proves_nothing(path, value, verdict):
    figures = changed(*path, value=value)
    found = findings(figures)
    assert overall(found).startswith(verdict)
    assert found[0]["text"] in spoken(view({"verdict": overall(found), "findings": found, **figures}))


def test_on_torch_rounding_is_told_and_breaks_nothing():
    near = {
        **changed("identity", "arms", "ngram", "greedy", "divergences", value=[divergence(True)]),
        "runtime": "torch",
    }
    found = findings(near)
    assert (overall(found), found[0]["kind"]) == ("lossless", "note")
    far = {
        **changed("identity", "arms", "ngram", "greedy", "divergences", value=[divergence(False)]),
        "runtime": "torch",
    }
    assert overall(findings(far)).startswith("broken")
    for largest, verdict in ((1e-6, "lossless"), (0.2, "broken: rows")):
        rows = changed("rows", "arms", "ngram", "pure", "equal", value=8)
        rows["rows"]["arms"]["ngram"]["pure"]["largest"] = largest
        assert overall(findings({**rows, "runtime": "torch"})).startswith(verdict)
        assert overall(findings({**rows, "runtime": "torch", "dtype": "bfloat16"})) == "lossless"


def test_case_154_agreement_of_a_drafter_that_was_never_right_is_no_proof():
    """Failure case 154: everything agrees, and the run says nothing; where nothing was refused it says so too."""
    figures = changed("identity", "arms", "ngram", "greedy", "accepted", value=8)
    found = findings(figures)
    assert overall(found) == "lossless"
    assert "refusing was not tried" in found[0]["text"]
    arm = changed("sampled", "arms", "ngram", "accepted", value=0)
    assert overall(findings(arm)) == "lossless"  # its text is promised, identity proves it
    arm["sampled"]["arms"]["ngram"]["promises_text"] = False
    assert overall(findings(arm)).startswith("unproven: sampled: ngram: proves nothing")
