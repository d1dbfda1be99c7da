"""How much was drafted: an acceptance rate without its volume means nothing.

A drafter that is the target itself, and one that hardly ever dares a guess, both reach 100 %; neither saves any time.
"""

from __future__ import annotations

from dataclasses import dataclass

from forerun.lab.sample import Counts

SUSPECT_RATE = 0.98
LITTLE = 0.5  # guesses a step


@dataclass(frozen=True, slots=True)
class Volume:
    """What stands beside an acceptance rate."""

    drafted: int
    accepted: int
    rounds: int
    """Passes of the target."""
    tokens: int
    identity: bool = False
    """The drafter runs the target's own weights, all of them."""

    @classmethod
    def of(cls, counts: Counts, identity: bool = False) -> Volume:
        """Of an arm's counts."""
        return cls(counts.drafted, counts.accepted, counts.passes, counts.emitted, identity)

    @property
    def rate(self) -> float | None:
        """Accepted of drafted; None where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def per_round(self) -> float:
        """Guesses a pass."""
        return self.drafted / self.rounds if self.rounds else 0.0

    @property
    def share(self) -> float:
        """Part of the answer's tokens that came from drafts."""
        return self.accepted / self.tokens if self.tokens else 0.0

    def warnings(self) -> list[str]:
        """Sentences on what the rate must not be taken for; none for an ordinary drafter."""
        if self.rate is None:
            return ["nothing was drafted: this is plain decoding, with the cost of looking for guesses"]
        found = []
        if self.identity:
            found.append("the drafter runs the target's own weights: whatever it guesses stands, and it saves no time")
        elif self.rate > SUSPECT_RATE:
            found.append(
                f"{self.rate:.0%} of the guesses stood: is the drafter the target itself, or does it dare only what "
                f"is certain? {self.share:.0%} of the tokens came from drafts"
            )
        if self.per_round < LITTLE:
            found.append(
                f"only {self.per_round:.2f} guesses a step: {self.rate:.0%} acceptance is a rate without volume, "
                f"{self.share:.0%} of the tokens came from drafts"
            )
        return found

    def to_json(self) -> dict[str, object]:
        """As JSON values."""
        return {
            "rate": None if self.rate is None else round(self.rate, 5),
            "drafted_per_round": round(self.per_round, 5),
            "share_of_tokens": round(self.share, 5),
            "rounds": self.rounds,
            "identity": self.identity,
            "warnings": self.warnings(),
        }
