"""A head's README: what it is, what it learnt from, what it is worth, and the command that made it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from time import strftime
from typing import Any

from forerun.core.options import Spec
from forerun.drafters.specs import split_plan
from forerun.train.corpus import Corpus, Place
from forerun.train.folder import Account
from forerun.train.job import Job
from forerun.train.made import Made
from forerun.train.tau import Tau
from forerun.train.trainer import State

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
DRAFTERS = {"draft": "model", "medusa2": "medusa"}
"""What drafts with the result of a kind, where it has another name."""


def card_of(
    job: Job,
    corpus: Corpus,
    learnt: Sequence[Place],
    state: State,
    tau: Tau,
    account: Account,
    made: Made,
    weights: str,
) -> dict[str, Any]:
    """All of it in numbers and words."""
    domains: Counter[str] = Counter()
    for place in learnt:
        domains[place.domain] += place.learnt
    seconds = {name: round(spent, 1) for name, spent in account.seconds.items()}
    return {
        "kind": job.kind, "model": corpus.facts.model, "fingerprint": corpus.facts.fingerprint, "command": job.command,
        "date": strftime("%Y-%m-%d"), "parameters": made.parameters, "taps": list(corpus.facts.taps[:-1]),
        "corpus": {
            "asked": _asked(corpus, job), "conversations": len(learnt), "learnt": sum(domains.values()),
            "tokens": sum(place.length for place in learnt), "by_domain": dict(domains),
            "manner": dict(corpus.facts.manner), "seed": corpus.facts.seed,
        },
        "recipe": job.recipe, "rate": job.rate, "batch": job.batch, "steps": state.step, "seed": job.seed,
        "losses": state.losses[-1:], "agreement": [round(value, 4) for value in state.agreement], "taus": state.taus,
        "best_step": next((step for step, tau in state.taus if tau == state.best_tau), state.step),
        "tau": asdict(tau), "shape": shape_of(str(job.kind)), "weights": weights,
        "seconds": {**seconds, "all": round(account.spent, 1)}, "sessions": account.sessions,
        "measure": measured_by(job, weights), "settings": dict(account.settings),
    }  # fmt: skip


def _asked(corpus: Corpus, job: Job) -> str:
    """Where all the prompts are from, in words."""
    return "; ".join([corpus.facts.asked, *(Corpus(folder).facts.asked for folder in job.also)])


def shape_of(kind: str) -> str:
    """The drafts of a kind, in words, as its drafter makes them if nobody says."""
    plan = split_plan(Spec.parse(DRAFTERS.get(kind, kind)))[0]
    if plan.width == 1:
        return f"chains of up to {plan.depth} tokens"
    return f"trees of up to {plan.nodes} nodes, {plan.depth} deep, {plan.width} wide"


def measured_by(job: Job, weights: str) -> str:
    """The command that measures the tau of the card again."""
    target, drafter = job.model, str(job.out)
    if job.kind == "medusa2":
        target, drafter = str(job.out), str(job.out / "medusa")
    words = [
        "forerun", "lab", "domains", "-m", target, "-d", drafter, "--workload", str(Path(job.out) / "held_out.jsonl"),
        "--prompts", "999",
    ]  # fmt: skip
    return shlex.join([*words, *([] if weights == "auto" else ["--weights", weights])])


def readme(card: Mapping[str, Any]) -> str:
    """Markdown; every number in it is out of `card`, which the head's own file keeps too."""
    corpus, tau, seconds = card["corpus"], card["tau"], card["seconds"]
    rows = "\n".join(
        f"| {domain} | {corpus['by_domain'].get(domain, 0)} | {value:.2f} |"
        for domain, value in tau["by_domain"].items()
    )
    kind, model = card["kind"], card["model"]
    article = "An" if kind[0] in "aeiou" else "A"
    sessions = "" if card["sessions"] == 1 else f", in {card['sessions']} sessions"
    return f"""# {_TITLES.get(kind, article + " {kind} head for {model}").format(kind=kind, model=model)}

Made on {card["date"]} by

    {card["command"]}

{card["parameters"] / 1e6:.1f}M numbers. {_SERVES.get(kind, _SERVES["head"]).format(**card)}

**Data**: {corpus["conversations"]} conversations, {corpus["learnt"]} tokens of the target's own answers.
Asked: {corpus["asked"]}.
**Training**: {card["steps"]} steps of up to {card["batch"]} tokens at a rate of {card["rate"]}, in
{seconds.get("training", 0.0)} s with measuring; answers took {seconds.get("answers", 0.0)} s,
all {seconds["all"]} s{sessions}.
{_begun(card)}
Tokens per target pass on {tau["prompts"]} held-out prompts (`held_out.jsonl`), greedy, {tau["tokens"]} tokens of each
answer, {card["shape"]}, the target in {card["weights"]}: {tau["all"]:.2f} over all.

| domain | tokens learnt from | tau |
|---|---|---|
{rows}

Measured again by

    {card["measure"]}
"""


def _begun(card: Mapping[str, Any]) -> str:
    begun = card.get("begun_from")
    if not begun:
        return ""
    worth = f"which has a tau of {begun['tau_here']:.2f} on the same prompts"
    return f"**Begun from** {begun['head']} ({begun['kind']}), {worth}.\n"
