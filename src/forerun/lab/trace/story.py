"""Steps as the page's script reads them: JSON values, each text once, numbers as short as eyes need them.

tokens   [text, …]                         as they are shown
steps    {plan, law, read, ms, nodes, rows, path, bonus, gain, guessed, stood}     the last two as the engine counts
nodes    [token, parent, p, confidence, entropy, fate]     p is the target's; the root first; null where unknown
rows     {node: [[token, p], …]}           the target's likeliest after a node
words    [text, token, step, drafted]      the answer, joined the engine's own text
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forerun.core.draft import Tree
from forerun.lab.page.visible import visible
from forerun.lab.trace.watch import Look, Seen
from forerun.text.words import TextWords

STOOD, REFUSED, BELOW, END, DROPPED = range(5)
"""Fates: it stood; the target drew another token there; its parent did not stand; it stood, but the answer had ended
before it; it was dropped before the target saw it."""


class Tokens:
    """Tokens as texts, each kept once."""

    def __init__(self, words: TextWords) -> None:
        self.texts: list[str] = []
        self._places: dict[int, int] = {}
        self._words = words

    def place(self, token: int) -> int:
        """Where this token's text stands."""
        if token not in self._places:
            self._places[token] = len(self.texts)
            self.texts.append(self._shown(token))
        return self._places[token]

    def _shown(self, token: int) -> str:
        """Bytes that are no whole character, and characters that cannot be seen, as escapes."""
        raw = self._words.token_bytes(token)
        if raw:
            return visible(raw.decode("utf-8", errors="backslashreplace"))
        return visible(self._words.tokenizer.name(token) or f"(token {token})")


def told(steps: Sequence[Seen], words: TextWords, stops: tuple[str, ...], prompt: Sequence[int] = ()) -> dict[str, Any]:
    """All of `tokens`, `steps` and `words`; `stops` are the texts that end the answer to `prompt`."""
    tokens, ear = Tokens(words), words.listen(stops, prompt)
    spoken: list[list[Any]] = []
    for i, seen in enumerate(steps):
        trace = seen.step
        (gained,) = trace.verdict.emitted(trace.draft)
        for rank, token in enumerate(gained[: trace.emitted[0]]):
            ear.hear(token)
            spoken.append([ear.take(), tokens.place(token), i, int(rank < len(trace.verdict.paths[0]))])
    if spoken:
        spoken[-1][0] += ear.finish()
    return {"steps": [_step(seen, tokens) for seen in steps], "words": spoken, "tokens": tokens.texts}


def _step(seen: Seen, tokens: Tokens) -> dict[str, Any]:
    trace, plan = seen.step, seen.step.plan
    scored, path, gain = trace.draft.trees[0], trace.verdict.paths[0], trace.emitted[0]
    places = kept(seen.proposed, scored)
    shown = {node: i for i, node in enumerate(places) if node is not None}
    bonus = trace.verdict.bonus[0]
    after = seen.looks[path[-1] if path else 0]
    return {
        "plan": [plan.depth, plan.nodes, plan.width, plan.confidence],
        "law": scored.law if seen.proposed.drafted else None,
        "read": trace.prefilled,
        "ms": {phase: round(1e3 * value, 3) for phase, value in seen.seconds.items()},
        "nodes": [_node(seen, i, place, tokens) for i, place in enumerate(places)],
        "rows": {shown[node]: _row(look, tokens) for node, look in seen.looks.items()},
        "path": [shown[node] for node in path],
        "bonus": [tokens.place(bonus), _short(after.chances[bonus])] if gain > len(path) else None,
        "gain": gain,
        "guessed": scored.drafted,
        "stood": min(len(path), gain),
    }


def _node(seen: Seen, i: int, node: int | None, tokens: Tokens) -> list[Any]:
    """Node i of the proposed tree, which is `node` of the scored one or was dropped."""
    tree = seen.proposed
    token, parent, signal = tree.tokens[i], tree.parents[i], tree.signals.get(i)
    chance = None
    if node:
        look = seen.looks[seen.step.draft.trees[0].parents[node]]
        chance = look.chances.get(token)
    signals = [signal and _short(signal.confidence), signal and _short(signal.entropy)]
    return [tokens.place(token), parent, _short(chance), *signals, fate(seen, node)]


def fate(seen: Seen, node: int | None) -> int:
    """What became of a node of the scored tree; None is one that was dropped."""
    if node is None:
        return DROPPED
    path, gain = seen.step.verdict.paths[0], seen.step.emitted[0]
    parent = seen.step.draft.trees[0].parents[node]
    if node in path:
        return STOOD if path.index(node) < gain else END
    if node == 0:
        return STOOD
    if parent and parent not in path:
        return BELOW
    return REFUSED if (path.index(parent) + 1 if parent else 0) < gain else END


def kept(proposed: Tree, scored: Tree) -> list[int | None]:
    """For each proposed node its place in the scored tree, which is the proposed one without some nodes, in order."""
    places: list[int | None] = [0]
    following = 1
    for token, parent in zip(proposed.tokens[1:], proposed.parents[1:], strict=True):
        same = (
            following < len(scored)
            and scored.tokens[following] == token
            and scored.parents[following] == places[parent]
        )
        places.append(following if same else None)
        following += same
    return places


def _row(look: Look, tokens: Tokens) -> list[list[Any]]:
    return [[tokens.place(token), _short(chance)] for token, chance in look.likeliest]


def _short(value: float | None) -> float | None:
    """Four digits, which a page shows at most."""
    return None if value is None else float(f"{value:.4g}")
