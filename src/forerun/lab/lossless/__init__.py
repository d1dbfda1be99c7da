"""Is the text the same? Four looks at it, each where the others are blind.

    identity   the same seed gives the same text, on real prompts
    rows       every token was drawn from the very row that plain decoding draws from
    exact      on toys, all outcomes with their probabilities
    sampled    with other seeds, the distribution of whole answers

`docs/losslessness.md` says what each can and cannot show, and why simpler tests find differences that are not there.
"""

from forerun.lab.lossless.show import view
from forerun.lab.lossless.study import Setup, answers, default_drafters, run_lossless

__all__ = ["Setup", "answers", "default_drafters", "run_lossless", "view"]
