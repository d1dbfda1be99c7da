"""Every lossless verifier, enumerated over laws, shapes and tables; and broken ones, which must be caught."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from forerun.core.protocols import Verifier
from forerun.lab.run import Run
from forerun.testing.enumeration import LIMIT, Case, cases, enumerate_case
from forerun.testing.sabotage import FAULTS, Sabotaged
from forerun.verify.names import VERIFIERS, verifier

PLANTED = Case("sampled", "fork", table="dense", vocab=2)  # small, and no fault hides in it


def measure_exact(
    run: Run, also: str = "auto", sabotage: str | None = None, *, quick: bool = False
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The figures and a sample an enumeration.

    `also` is the verifier that the user asked for, judged even if it does not call itself lossless; a `sabotage` is
    judged as if it were one of ours. The broken verifiers of `testing.sabotage` are enumerated on the side: `planted`
    says what they deviate by, and whether that was noticed.
    """
    judged = _lossless(also) + ([Sabotaged(sabotage)] if sabotage else [])
    samples = []
    for verify in run.track(judged, "exact"):
        samples += run.unit(f"exact/{verify.name}", partial(_enumerated, verify, quick))
    planted = run.unit("exact/planted", lambda: {fault: _planted(fault) for fault in FAULTS})
    worst = max(samples, key=lambda sample: sample["deviation"])
    figures = {
        "cases": len(samples),
        "runs": sum(sample["runs"] for sample in samples),
        "largest_deviation": worst["deviation"],
        "worst": f"{worst['verifier']}: {worst['name']}",
        "limit": LIMIT,
        "verifiers": {verify.name: _figures(samples, verify.name) for verify in judged},
        "planted": planted,
    }
    return figures, [{"part": "exact", **sample} for sample in samples]


def _lossless(also: str) -> list[Verifier]:
    """All verifiers that promise something at temperatures above 0, and the one called `also`."""
    every = [verifier(name) for name in VERIFIERS]
    return [v for v in every if (v.lossless or v.name == also) and not v.greedy_only]


def _enumerated(verify: Verifier, quick: bool) -> list[dict[str, Any]]:
    return [
        {"verifier": verify.name, "name": case.name, **asdict(enumerate_case(verify, case))}
        for case in cases(verify, quick=quick)
    ]


def _planted(fault: str) -> dict[str, Any]:
    """The deviation of a broken verifier, and whether it was noticed."""
    deviation = enumerate_case(Sabotaged(fault), PLANTED).deviation
    return {"deviation": deviation, "caught": deviation > LIMIT}


def _figures(samples: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    mine = [sample for sample in samples if sample["verifier"] == name]
    return {
        "cases": len(mine),
        "largest_deviation": max(sample["deviation"] for sample in mine),
        "accepted": round(sum(sample["accepted"] for sample in mine) / len(mine), 4),
    }
