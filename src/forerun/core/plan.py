"""How far a step may guess: said by a controller, obeyed by the drafter."""

from __future__ import annotations

from dataclasses import dataclass

from forerun.core.errors import SpecError

MAX_DEPTH = 256
MAX_NODES = 1024


@dataclass(frozen=True, slots=True)
class Plan:
    """Limits of one step's drafts; a drafter may always guess less."""

    depth: int
    """Tokens ahead on any path; 0 is plain decoding."""
    nodes: int = MAX_DEPTH
    """Drafted nodes of a tree, root not counted."""
    width: int = 1
    """Most children of a node; 1 is a chain."""
    confidence: float = 0.0
    """A drafter with probabilities stops below a node whose path is less likely than this, by its own account."""
    signals: bool = False
    """A drafter with probabilities says what it thinks of each guess, which costs time; what it guesses is the same."""

    def __post_init__(self) -> None:
        for name, low, high in (("depth", 0, MAX_DEPTH), ("nodes", 0, MAX_NODES), ("width", 1, MAX_NODES)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise SpecError(f"{name} must be a whole number from {low} to {high}, got {value!r}")
        if not isinstance(self.confidence, float | int) or not 0.0 <= self.confidence < 1.0:
            raise SpecError(f"confidence must be from 0 up to (not including) 1, got {self.confidence!r}")

    @staticmethod
    def none() -> Plan:
        """Plain decoding."""
        return Plan(depth=0)

    def __bool__(self) -> bool:
        return self.depth > 0 and self.nodes > 0

    def most(self, room: int) -> int:
        """The most nodes a tree may have, root not counted, where at most `room` tokens ahead are of use."""
        depth = min(self.depth, room)
        return min(self.nodes, depth) if self.width == 1 else min(self.nodes, MAX_NODES if depth else 0)


@dataclass(frozen=True, slots=True)
class Load:
    """What a controller may look at before it plans."""

    running: int
    """Sequences that decode in this step."""
    waiting: int
    """Requests not yet admitted."""
    prefilling: int
    """Prompt tokens in this step's forward."""
    context: int
    """Longest sequence of the step, in tokens."""
