"""Which conversations a corpus takes, and when there are enough.

Conversations end in any order, the short ones first. They are taken in the order of their numbers, so that what a
corpus holds depends on neither the order nor an interruption, and does not lean to short answers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_PRIOR = 16  # conversations that the guess is worth


@dataclass(frozen=True, slots=True)
class Budget:
    """How much is wanted: answered tokens, seconds on `perf_counter`'s clock, or as much as there is."""

    tokens: int | None = None
    until: float | None = None


@dataclass(slots=True)
class Intake:
    """Takes conversations up to `tokens` answered tokens; `once`: a prompt that was asked before is left out."""

    tokens: int | None = None
    once: bool = True
    guess: float = 100.0
    """Answered tokens of a conversation, as long as few have ended."""
    learnt: int = 0
    """Answered tokens that are taken."""
    taken: int = 0
    upto: int = 0
    """All below this number are decided on."""
    waiting: int = 0
    """Answered tokens of those that ended and wait for one with a lower number."""
    repeated: set[int] = field(default_factory=set)
    """Numbers of those that were left out because their prompt was asked before."""
    _prompts: set[str] = field(default_factory=set)
    _ended: dict[int, tuple[str, int]] = field(default_factory=dict)
    _decided: int = 0

    def put(self, number: int, prompt: str = "", learnt: int = 0) -> None:
        """A conversation ended; without answered tokens nothing came of it."""
        self._ended[number] = (prompt, learnt)
        self.waiting += learnt
        while self.upto in self._ended and not self.full:
            self._take(self.upto)
            self.upto += 1

    def take_all(self) -> None:
        """Take those too that wait for others: none will come any more."""
        for number in sorted(self._ended):
            if self.full:
                break
            self._take(number)
            self.upto = number + 1

    def _take(self, number: int) -> None:
        prompt, learnt = self._ended.pop(number)
        self.waiting -= learnt
        self._decided += 1
        if not learnt:
            return
        if self.once and prompt in self._prompts:
            self.repeated.add(number)
            return
        self._prompts.add(prompt)
        self.learnt, self.taken = self.learnt + learnt, self.taken + 1

    @property
    def full(self) -> bool:
        """Whether there is enough."""
        return self.tokens is not None and self.learnt >= self.tokens

    @property
    def mean(self) -> float:
        """Answered tokens of a conversation, those included of which nothing came. Those that wait do not count: the
        first to end are the short ones."""
        return max(1.0, (_PRIOR * self.guess + self.learnt) / (_PRIOR + self._decided))

    def wants(self, running: int) -> bool:
        """Whether another is to begin where so many run."""
        return self.tokens is None or self.learnt + self.waiting + running * self.mean < self.tokens


@dataclass(slots=True)
class Pace:
    """How many conversations may run at a time so that they end before `until`: few at first, more as steps are timed.

    `steps` is how many forwards a conversation takes, as far as one knows.
    """

    width: int
    until: float | None
    steps: float
    seconds: float = 0.0
    """Of a step, lately."""
    _allowed: int = 8
    _timed: int = 0
    _ended: int = 0

    def told(self, seconds: float, ended: tuple[int, ...], now: float) -> None:
        """A step took so long, and conversations of so many steps ended in it."""
        self.seconds = seconds if not self._timed else 0.8 * self.seconds + 0.2 * seconds
        self._timed += 1
        for steps in ended:
            self._ended += 1
            self.steps += (steps - self.steps) / min(self._ended + 1, 50)
        # Twice as many take at most twice as long: they must be through in half of the time that is left.
        if self.until is not None and self._timed % 4 == 0 and 4 * self.steps * self.seconds < self.until - now:
            self._allowed *= 2

    def room(self, running: int, now: float) -> bool:
        """Whether another may begin where so many run."""
        if self.until is None:
            return running < self.width
        if running >= min(self.width, self._allowed):
            return False
        return not self._timed or now + self.steps * self.seconds <= self.until

    def needed(self) -> float:
        """Seconds that one conversation takes at this pace."""
        return self.steps * self.seconds
