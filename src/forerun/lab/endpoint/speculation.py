"""What speculation came to: never a rate of acceptance without its volume.

A rate alone says little: a drafter that dares one token in a hundred has a fine one, and one that is slower than the
target may have the best. So beside it stand how much was drafted in a round and how much of the answers came from
drafts, and where these make the rate suspect, a warning. Whether it paid is in the times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forerun.lab.endpoint.chunk import Drafted
from forerun.lab.endpoint.metrics import Counts
from forerun.lab.endpoint.part import Part
from forerun.lab.endpoint.reply import Reply

TOO_GOOD = 0.98
TOO_FEW = 0.5  # drafted tokens in a round


def speculation(parts: Sequence[Part], replies: Sequence[Reply], tokens: int | None) -> dict[str, Any]:
    """By the answers themselves where servers tell it there, else by the difference of its counters; where the server
    says nothing, why so."""
    counts = [part.counts for part in parts if part.counts is not None]
    settled = all(part.settled for part in parts)
    counted = _by_counters(counts, len(parts), tokens, settled) if counts else None
    told = _by_answers([reply.drafted for reply in replies], tokens)
    if told is None or (counted is not None and counted.get("drafted") == told["drafted"] and told["rounds"] is None):
        found = counted  # where both agree and only counters tell rounds, they say more
    else:
        found = told
    if found is None:
        return {"source": "nobody", "silence": parts[-1].silence, "warnings": []}
    if not found["warnings"] and not found.get("drafted") and not found.get("passes"):
        return {**found, "silence": f"by {found['source']} nothing was drafted"}
    return found


def _by_answers(told: Sequence[Drafted | None], tokens: int | None) -> dict[str, Any] | None:
    known = [drafted for drafted in told if drafted is not None]
    if not known or len(known) < len(told):
        return None
    rounds = [drafted.rounds for drafted in known]
    return {
        "source": f"{known[0].source}, in every answer",
        **volume(
            sum(drafted.drafted for drafted in known),
            sum(drafted.accepted for drafted in known),
            None if None in rounds else sum(count or 0 for count in rounds),
            tokens,
        ),
    }


def _by_counters(counts: Sequence[Counts], blocks: int, tokens: int | None, settled: bool) -> dict[str, Any]:
    source = f"{counts[0].source}, counters"
    if any(count.restarted for count in counts):
        restarted = "the server's counters began anew during the run: nothing can be said of its speculation"
        return {"source": source, "warnings": [restarted]}
    if len(counts) < blocks:
        unread = f"counters could be read around {len(counts)} of {blocks} blocks: nothing can be said of speculation"
        return {"source": source, "warnings": [unread]}
    if counts[0].passes is not None:
        passes = sum(count.passes or 0 for count in counts)
        generated = sum(count.generated or 0 for count in counts)
        per_pass = round(generated / passes, 4) if passes else None
        return {"source": source, "passes": passes, "tokens_per_pass": per_pass, "warnings": []}
    rounds = None if any(count.drafts is None for count in counts) else sum(count.drafts or 0 for count in counts)
    drafted, accepted = (sum(getattr(count, name) or 0 for count in counts) for name in ("drafted", "accepted"))
    longest = max(len(count.accepted_at) for count in counts)
    found = volume(drafted, accepted, rounds, tokens)
    found["accepted_at"] = [sum(c.accepted_at[i] for c in counts if i < len(c.accepted_at)) for i in range(longest)]
    if not settled:
        found["warnings"].append("the server did not come to rest: requests of others may be counted here")
    return {"source": source, **found}


def volume(drafted: int, accepted: int, rounds: int | None, tokens: int | None) -> dict[str, Any]:
    """The rate, all that it has to be read with, and warnings; `rounds` are drafts, `tokens` those of the answers."""
    rate = round(accepted / drafted, 4) if drafted else None
    per_round = round(drafted / rounds, 4) if rounds else None
    share = round(accepted / tokens, 4) if tokens else None
    warnings = []
    if rate is not None and rate > TOO_GOOD:
        warnings.append(f"{rate:.0%} accepted is too good for a cheap drafter: does the target draft for itself?")
    if per_round is not None and per_round < TOO_FEW:
        warnings.append(f"only {per_round:.2f} tokens drafted a round: the rate says little")
    if share is not None and share > 1:
        warnings.append("more tokens were accepted than these answers have: somebody else used the server")
    return {
        "drafted": drafted,
        "accepted": accepted,
        "rounds": rounds,
        "acceptance": rate,
        "drafted_per_round": per_round,
        "share_of_answers": share,
        "warnings": warnings,
    }
