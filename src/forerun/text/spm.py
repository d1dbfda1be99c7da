"""SentencePiece's BPE without its file of merges: the order of merging is that of the tokens' scores.

A pair may merge when its joined text is a token, the best-scored first. Written out as a list of merges,
this is what the `tokenizers` library runs.
"""

from collections.abc import Mapping

from forerun.core.errors import LoadError

_LONGEST = 512  # characters of one token


def merges_by_score(scores: Mapping[str, float]) -> list[tuple[str, str]]:
    """Every way of making a token out of two others, best score first; LoadError for an absurd token."""
    found: list[tuple[float, str, str]] = []
    for token, score in scores.items():
        if len(token) > _LONGEST:
            raise LoadError(f"a token has {len(token)} characters (allowed: {_LONGEST}); convert the model again")
        if score != score:
            raise LoadError(f"token {token!r} has score {score} (allowed: numbers); convert the model again")
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in scores and right in scores:
                found.append((-score, left, right))
    found.sort(key=lambda entry: entry[0])  # stable: equal scores keep the order of the vocabulary
    return [(left, right) for _, left, right in found]
