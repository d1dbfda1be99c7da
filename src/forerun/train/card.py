"""A head's README: what it is, what it learnt from, what it is worth, and the command that made it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TITLES = {
    "draft": "A draft model for {model}",
    "medusa2": "Another target made of {model}, with Medusa heads",
}
_SERVES = {
    "head": """\
It serves the target with the fingerprint `{fingerprint}`; beside
another one the text stays right, and its guesses are seldom so.""",
    "medusa2": """\
This folder is another target: its text differs from that of {model}. The heads, in `medusa`, serve
this one. Share of rows whose likeliest word is still the same, and then the heads': {agreement}.""",
}


def readme(card: Mapping[str, Any]) -> str:
    """Markdown; every number in it is out of `card`, which the head's own file keeps too."""
    corpus, tau, seconds = card["corpus"], card["tau"], card["seconds"]
    rows = "\n".join(
        f"| {domain} | {corpus['by_domain'].get(domain, 0)} | {value:.2f} |"
        for domain, value in tau["by_domain"].items()
    )
    return f"""# {_TITLES.get(card["kind"], "A {kind} head for {model}").format(**card)}

Made on {card["date"]} by

    {card["command"]}

{card["parameters"] / 1e6:.1f}M numbers. {_SERVES.get(card["kind"], _SERVES["head"]).format(**card)}

**Data**: {corpus["conversations"]} conversations, {corpus["learnt"]} tokens of the target's own answers.
Asked: {corpus["asked"]}.
**Training**: {card["steps"]} steps of up to {card["batch"]} tokens at a rate of {card["rate"]}, in
{seconds["training"]} s; the corpus took {seconds["corpus"]} s of the same run.

Tokens per target pass, greedy, on {tau["prompts"]} held-out prompts, {tau["all"]:.2f} over all:

| domain | tokens learnt from | tau |
|---|---|---|
{rows}
"""
