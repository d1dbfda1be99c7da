"""What a run of `lab lossless` shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from forerun.lab import columns
from forerun.lab.columns import Column
from forerun.lab.views import Note, Table, View

LISTED = 12  # differences in a table; the file has all


def view(figures: Mapping[str, Any]) -> list[View]:
    """The verdict and what is behind it, a table a part, and the differences one by one."""
    views: list[View] = [Note(f"verdict: {figures['verdict']}")]
    if "identity" in figures:
        title = "identity: the same seed, the same text as plain decoding?"
        views += [_samplings(title, figures["identity"], IDENTITY), *_differences(figures["identity"])]
    if "rows" in figures:
        title = "rows: was each token drawn from plain decoding's row?"
        views.append(_samplings(title, figures["rows"], ROWS))
    if "exact" in figures:
        exact = figures["exact"]
        title = f"exact: {exact['runs']:,} outcomes of {exact['cases']} toys, all of them"
        rows = [((name,), found) for name, found in exact["verifiers"].items()]
        views += [columns.table(title, ("verifier",), rows, EXACT), _planted(exact)]
    if "sampled" in figures:
        views += [_sampled(figures["sampled"]), _calibration(figures["sampled"])]
    views += [Note(f"{f['kind']}: {f['part']}: {f['text']}") for f in figures["findings"]]
    if figures.get("left_out"):
        views.append(Note(f"left out, too long for the context: {', '.join(figures['left_out'])}"))
    return views


COUNTS = tuple(columns.count(key, key) for key in ("tokens", "drafted", "accepted"))
IDENTITY = (Column("same text", lambda f: f"{f['same']} of {f['of']}"), *COUNTS)
ROWS = (
    Column("equal bits", lambda f: f"{f['equal']:,} of {f['compared']:,}"),
    Column("largest difference", lambda f: f"{f['largest']:.2g}"),
    *COUNTS[1:],
)
EXACT = (
    columns.word("cases", "cases"),
    Column("largest deviation", lambda f: f"{f['largest_deviation']:.2g}"),
    columns.of("stood on average", "accepted"),
)
SAMPLED = (
    Column("p", lambda f: f"{f['pvalue']:.4f}"),
    Column("after Holm", lambda f: f"{f['holm']:.4f}" if "holm" in f else "-"),
    Column("least of a prompt", lambda f: f"{min(f['by_prompt'].values()):.4f}"),
    *COUNTS[1:],
)
CALIBRATION = (
    columns.word("tests", "tests"),
    Column("distance from uniform", lambda f: f"{f['distance']:.3f}"),
    Column("chance of it", lambda f: f"{f['pvalue']:.3f}"),
    Column("p below 0.05", lambda f: f"{f['below_0.05']:.1%}"),
)


def _samplings(title: str, found: Mapping[str, Any], shown: Iterable[Column]) -> Table:
    rows = [((name, sampling), arm) for name, samplings in found["arms"].items() for sampling, arm in samplings.items()]
    return columns.table(title, ("drafter", "sampling"), rows, shown)


def _differences(identity: Mapping[str, Any]) -> list[View]:
    rows = [
        (
            f"{name}, {sampling}",
            d["prompt"],
            str(d["position"]),
            _token(d["plain"]),
            _token(d["drafted"]),
            f"{d['logits']:.4g}" if "logits" in d else "-",
            f"{d['decided']:.4g}" if "decided" in d else "-",
            "near-tie" if d["near_tie"] else "NO TIE",
        )
        for name, samplings in identity["arms"].items()
        for sampling, arm in samplings.items()
        for d in arm["divergences"]
    ]
    heads = ("arm", "prompt", "position", "plain", "drafted", "logit margin", "decided by", "")
    title = f"where answers part ({len(rows)} in all)"
    return [Table(title, heads, tuple(rows[:LISTED]))] if rows else []


def _token(token: Mapping[str, Any] | None) -> str:
    return "the end" if token is None else f"{token['id']} {token['text']!r}"


def _planted(exact: Mapping[str, Any]) -> Note:
    said = ", ".join(
        f"{fault} by {p['deviation']:.2g}{'' if p['caught'] else ' (NOT noticed)'}"
        for fault, p in exact["planted"].items()
    )
    return Note(f"broken on purpose, these deviate: {said}")


def _sampled(sampled: Mapping[str, Any]) -> Table:
    title = (
        f"sampled: {sampled['answers']} answers of {sampled['tokens']} tokens to each of {sampled['prompts']} prompts, "
        f"against as many plain ones"
    )
    return columns.table(title, ("arm",), [((name,), arm) for name, arm in sampled["arms"].items()], SAMPLED)


def _calibration(sampled: Mapping[str, Any]) -> Table:
    named = {f"toy: plain against {name}": found for name, found in sampled["toy"].items()}
    if sampled["calibration"]:
        named["this model: plain against plain"] = sampled["calibration"]
    rows = [((name,), found) for name, found in named.items()]
    return columns.table("how the test itself behaves", ("contest",), rows, CALIBRATION)
