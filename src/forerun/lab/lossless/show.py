"""What a run of `lab lossless` shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.lab.views import Note, Table, View

LISTED = 12  # differences in a table; the file has all


def view(figures: Mapping[str, Any]) -> list[View]:
    """The verdict and what is behind it, a table a part, and the differences one by one."""
    views: list[View] = [Note(f"verdict: {figures['verdict']}")]
    if "identity" in figures:
        views += [_identity(figures["identity"]), *_differences(figures["identity"])]
    if "rows" in figures:
        views.append(_rows(figures["rows"]))
    if "exact" in figures:
        views += [_exact(figures["exact"]), _planted(figures["exact"])]
    if "sampled" in figures:
        views += [_sampled(figures["sampled"]), _calibration(figures["sampled"])]
    views += [Note(f"{f['kind']}: {f['part']}: {f['text']}") for f in figures["findings"]]
    if figures.get("left_out"):
        views.append(Note(f"left out, too long for the context: {', '.join(figures['left_out'])}"))
    return views


def _identity(identity: Mapping[str, Any]) -> Table:
    rows = tuple(
        (name, sampling, f"{arm['same']} of {arm['of']}", *(f"{arm[n]:,}" for n in ("tokens", "drafted", "accepted")))
        for name, samplings in identity["arms"].items()
        for sampling, arm in samplings.items()
    )
    heads = ("drafter", "sampling", "same text", "tokens", "drafted", "accepted")
    return Table("identity: the same seed, the same text as plain decoding?", heads, rows)


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


def _rows(rows: Mapping[str, Any]) -> Table:
    cells = tuple(
        (
            name,
            sampling,
            f"{arm['equal']:,} of {arm['compared']:,}",
            f"{arm['largest']:.2g}",
            f"{arm['drafted']:,}",
            f"{arm['accepted']:,}",
        )
        for name, samplings in rows["arms"].items()
        for sampling, arm in samplings.items()
    )
    heads = ("drafter", "sampling", "equal bits", "largest difference", "drafted", "accepted")
    return Table("rows: was each token drawn from plain decoding's row?", heads, cells)


def _exact(exact: Mapping[str, Any]) -> Table:
    rows = tuple(
        (name, str(v["cases"]), f"{v['largest_deviation']:.2g}", f"{v['accepted']:.2f}")
        for name, v in exact["verifiers"].items()
    )
    title = f"exact: {exact['runs']:,} outcomes of {exact['cases']} toys, all of them"
    return Table(title, ("verifier", "cases", "largest deviation", "stood on average"), rows)


def _planted(exact: Mapping[str, Any]) -> Note:
    said = ", ".join(
        f"{fault} by {p['deviation']:.2g}{'' if p['caught'] else ' (NOT noticed)'}"
        for fault, p in exact["planted"].items()
    )
    return Note(f"broken on purpose, these deviate: {said}")


def _sampled(sampled: Mapping[str, Any]) -> Table:
    rows = tuple(
        (
            name,
            f"{arm['pvalue']:.4f}",
            f"{arm['holm']:.4f}" if "holm" in arm else "-",
            f"{min(arm['by_prompt'].values()):.4f}",
            f"{arm['drafted']:,}",
            f"{arm['accepted']:,}",
        )
        for name, arm in sampled["arms"].items()
    )
    title = (
        f"sampled: {sampled['answers']} answers of {sampled['tokens']} tokens to each of {sampled['prompts']} prompts, "
        f"against as many plain ones"
    )
    return Table(title, ("arm", "p", "after Holm", "least of a prompt", "drafted", "accepted"), rows)


def _calibration(sampled: Mapping[str, Any]) -> Table:
    named = {f"toy: plain against {name}": found for name, found in sampled["toy"].items()}
    if sampled["calibration"]:
        named["this model: plain against plain"] = sampled["calibration"]
    rows = tuple(
        (name, str(f["tests"]), f"{f['distance']:.3f}", f"{f['pvalue']:.3f}", f"{f['below_0.05']:.1%}")
        for name, f in named.items()
    )
    heads = ("contest", "tests", "distance from uniform", "chance of it", "p below 0.05")
    return Table("how the test itself behaves", heads, rows)
