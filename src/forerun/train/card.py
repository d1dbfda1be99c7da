"""A head's README: what it is, what it learnt from, what it is worth, and the command that made it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def readme(card: Mapping[str, Any]) -> str:
    """Markdown; every number in it is out of `card`, which the head's own file keeps too."""
    corpus, tau, seconds = card["corpus"], card["tau"], card["seconds"]
    rows = "\n".join(
        f"| {domain} | {corpus['by_domain'].get(domain, 0)} | {value:.2f} |"
        for domain, value in tau["by_domain"].items()
    )
    return f"""# A {card["kind"]} head for {card["model"]}

Made on {card["date"]} by

    {card["command"]}

{card["parameters"] / 1e6:.1f}M numbers. It serves the target with the fingerprint `{card["fingerprint"]}`; beside
another one the text stays right, and its guesses are seldom so.

**Data**: {corpus["conversations"]} conversations, {corpus["learnt"]} tokens of the target's own answers.
Asked: {corpus["asked"]}.
**Training**: {card["steps"]} steps of up to {card["batch"]} tokens at a rate of {card["rate"]}, in
{seconds["training"]} s; the corpus took {seconds["corpus"]} s of the same run.

Tokens per target pass, greedy, on {tau["prompts"]} held-out prompts, {tau["all"]:.2f} over all:

| domain | tokens learnt from | tau |
|---|---|---|
{rows}
"""
