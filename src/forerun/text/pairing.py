"""Whether a draft model's tokenizer is near enough to its target's, and which ids the two do not share.

The rule: every ordinary token has one id in both. Special and added tokens may have other names, or be missing in one:
such ids are never guessed.
"""

from forerun.core.errors import SpecError
from forerun.text.tokenizer import Tokenizer


def unlike(target: Tokenizer, draft: Tokenizer) -> frozenset[int]:
    """Ids that are not the same token in both; SpecError if an ordinary token is among them."""
    if target.fingerprint == draft.fingerprint:
        return frozenset()
    longer = max(target.size, draft.size)
    odd = [i for i in range(longer) if target.identity(i) != draft.identity(i)]
    for i in odd:
        if target.ordinary(i) or draft.ordinary(i):
            raise SpecError(f"id {i} is {shown(draft, i)} there and {shown(target, i)} here, and no added token")
    return frozenset(odd)


def shown(tokenizer: Tokenizer, token: int) -> str:
    """A token for people."""
    raw = tokenizer.identity(token)
    if not raw:
        return "nothing"
    try:
        return repr(raw.decode("utf-8"))
    except UnicodeDecodeError:
        return repr(raw)
