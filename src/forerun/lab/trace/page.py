"""The page of a trace: facts and frame from here, the trees drawn by the script as they come into view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from forerun.lab.looping import share
from forerun.lab.page import html
from forerun.lab.page.visible import visible
from forerun.lab.trace.record import Beside, Recording

_SEEN = "\n\t\u200c\u200d"  # kept in running text, though unseen: emoji and whole scripts need the joiners
_KEYS = (
    ("←", "→", "one step back and on"),
    ("p", "n", "to the last or next step with a refusal"),
    ("Home", "End", "first and last step"),
)


def page(found: Recording, prompt: str, params: Mapping[str, Any], bench: Mapping[str, Any]) -> str:
    """The whole page; `bench` is its provenance, `params` how the answer was drawn."""
    styles = [html.asset("forerun.lab.page", "page.css"), html.asset("forerun.lab.trace", "trace.css")]
    script = html.asset("forerun.lab.trace", "layout.js") + html.asset("forerun.lab.trace", "trace.js")
    title = f"{found.drafter} on {bench['model']}"
    words = [[visible(piece, _SEEN), *rest] for piece, *rest in found.story["words"]]
    body = _body(title, found, prompt, params, bench)
    return html.document(title, body, styles, data={**found.story, "words": words}, script=script)


def _body(title: str, found: Recording, prompt: str, params: Mapping[str, Any], bench: Mapping[str, Any]) -> str:
    facts = "".join(
        f"<div><dt>{html.text(name)}</dt><dd>{html.text(said)}</dd></div>" for name, said in summary(found, params)
    )
    notes = "".join(f"<p class=note>{html.text(note)}</p>\n" for note in remarks(found, params))
    keys = "; ".join(f"<kbd>{back}</kbd> <kbd>{on}</kbd> {what}" for back, on, what in _KEYS)
    return f"""<header>
<h1>{html.text(title)}</h1>
<p class=sub>One generation, step by step: what was guessed, what stood, and why not.</p>
<dl class=facts>{facts}</dl>
{notes}<details class=card><summary>The prompt</summary><pre dir=auto>{html.text(prompt, keep=_SEEN)}</pre></details>
{html.provenance(bench)}</header>
<noscript><p class=note>Steps are drawn by a script of this page. Without it, the answer:</p>
<pre>{html.text(found.text, keep=_SEEN)}</pre></noscript>
<nav id=bar>
<svg id=strip role=slider tabindex=0 aria-label="Steps" preserveAspectRatio=none></svg>
<p class=legend><span class=k-stood>stood</span><span class=k-refused>guessed, refused</span>
<span class=k-bonus>the target's own</span>
<span class=t-draft>draft</span><span class=t-score>score</span><span class=t-verify>verify</span><span
class=t-commit>commit</span>
<label><input type=checkbox id=only> only steps with a refusal</label> <output id=where></output></p>
<div id=text dir=auto></div>
</nav>
<main id=steps></main>
<footer><p>{keys}. Hover over a guess, or tap it, for its probabilities.</p></footer>
<div id=tip role=tooltip hidden></div>"""


def summary(found: Recording, params: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Facts for the head of the page: name and value."""
    s = found.sample
    how = f"temperature {params['temperature']:g}, seed {params.get('seed')}" if params.get("temperature") else "greedy"
    facts = [
        ("tokens", str(s.emitted)),
        ("target passes", str(s.passes)),
        ("tokens a pass (tau)", f"{s.emitted / s.passes:.2f}"),
        ("guesses", f"{s.accepted} of {s.drafted} stand" if s.drafted else "none"),
        ("answer", how),
        *([("repeats itself", f"{share(s.repeats):.0%} of its 6-grams stood before: it loops")] if s.loops else []),
        ("judged by", found.verifier),
    ]
    return [*facts, *(_compared(found.beside) if found.beside else [])]


def counts(found: Recording) -> dict[str, Any]:
    """What was counted and compared, for machines."""
    s = found.sample
    counted = {"tokens": s.emitted, "passes": s.passes, "drafted": s.drafted, "accepted": s.accepted}
    return {**counted, "text": found.text, "beside": asdict(found.beside) if found.beside else None}


def _compared(beside: Beside) -> list[tuple[str, str]]:
    same = "the same" if beside.parts_at is None else f"parts at character {beside.parts_at}"
    if beside.ms_per_token is None or beside.other_ms_per_token is None:
        return [(f"text beside {beside.name}", same)]
    ratio = beside.other_ms_per_token / beside.ms_per_token
    times = f"{beside.ms_per_token:.2f} against {beside.other_ms_per_token:.2f} ms a token, {ratio:.2f} times as fast"
    return [(f"beside {beside.name}", times), ("text", same)]


def remarks(found: Recording, params: Mapping[str, Any]) -> list[str]:
    """What a reader should know before believing anything."""
    notes = ["Times of phases are of this one answer. The drafter was asked for what it thinks of each guess, which "
             "makes it slower than in use; the time of watching itself is left out."]  # fmt: skip
    if found.beside:
        notes.append("The comparison is of one answer each, unwatched: an impression. `forerun lab domains` measures.")
    if found.beside and found.beside.parts_at is not None and params.get("temperature") and found.lossless:
        notes.append(
            "Of drafts that chance made, one seed gives different texts with different drafters; each is drawn from "
            "the target's own distribution."
        )
    if not found.lossless:
        notes.append(f"The verifier {found.verifier} is lossy: this is not quite what the model would say.")
    if not params.get("temperature"):
        notes.append("The answer is greedy, so the likeliest token stands; probabilities are those of temperature 1.")
    return notes
