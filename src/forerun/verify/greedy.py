"""The argmax walk, for those who want to be told when a request is not greedy.

The same walk as `match` at temperature 0; it has no answer to a request with chance in it, and says so.
"""

from __future__ import annotations

from forerun.core.draft import ALL_LAWS, Draft, Verdict
from forerun.core.errors import SpecError
from forerun.core.noise import Noise
from forerun.core.rows import Rows
from forerun.verify import match
from forerun.verify.by_tree import by_tree


class Greedy:
    """Keeps the path of likeliest tokens; SpecError for a sequence with temperature above 0."""

    name = "greedy"
    laws = ALL_LAWS
    chains_only = False
    greedy_only = True
    lossless = True

    def __call__(self, draft: Draft, rows: Rows, noise: Noise) -> Verdict:
        for item in rows.items[: len(draft)]:
            params = item.seq.params
            if not params.greedy:
                raise SpecError(
                    f"verifier 'greedy' takes temperature 0 only, got {params.temperature:g}: use 'match' or 'auto'"
                )
        return by_tree(self, match.walk, draft, rows, noise)
