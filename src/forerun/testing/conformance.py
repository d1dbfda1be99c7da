"""One call that says whether a part keeps the contract: for our own parts and for yours.

    check_drafter(lambda: MyDrafter())      # proposals within plan, room and law; the text is plain decoding's
    check_target(lambda: MyTarget())        # rows, growth, commit, truncation, memory
    check_verifier(lambda: MyVerifier())    # paths that exist, tokens that are possible, purity, greedy

Each runs a part through what an engine does to it (plans that change at every step, sequences of different lengths,
preemption, somebody else's drafts) in a second or so, and raises AssertionError or BrokenInvariant with a sentence that
says what was broken. Exact losslessness of a verifier is measured by `forerun.testing.gate`.
"""

from forerun.testing.conform_drafter import Tally, check_drafter, toy_law
from forerun.testing.conform_target import check_target
from forerun.testing.conform_verifier import check_verifier

__all__ = ["Tally", "check_drafter", "check_target", "check_verifier", "toy_law"]
