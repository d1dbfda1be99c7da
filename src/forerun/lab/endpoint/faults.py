"""What can go wrong between us and a server: one line each, and whether asking again is of use."""

from __future__ import annotations

LONGEST = 200  # characters of a server's own words that are passed on


class Fault(Exception):
    """A request that gave no answer.

    `kind` groups such requests in the figures; `again`: the same request may succeed later; `after`: seconds that the
    server asked to wait; `status`: of the HTTP answer, 0 where there was none.
    """

    def __init__(
        self, kind: str, text: str, *, again: bool = False, after: float | None = None, status: int = 0
    ) -> None:
        super().__init__(text)
        self.kind = kind
        self.again = again
        self.after = after
        self.status = status


def shown(text: str) -> str:
    """Somebody else's words in one line of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
