"""The kit must see a fault: each of these verifiers breaks one promise."""

from __future__ import annotations

import pytest

from forerun.core.draft import LAWS, Verdict
from forerun.core.errors import BrokenInvariant
from forerun.testing.conformance import check_verifier
from forerun.verify.match import Match
from forerun.verify.names import VERIFIERS


@pytest.mark.parametrize("name", VERIFIERS)
def test_ours_conform(name):
    check_verifier(VERIFIERS[name], rounds=8)


class Trusting(Match):
    """Case 1: the first drafted token is never judged."""

    name = "trusting"

    def __call__(self, draft, rows, noise):
        paths = tuple((1,) if len(tree) > 1 else () for tree in draft.trees)
        return Verdict(paths, tuple(rows.pick(b, max((0, *path)), noise) for b, path in enumerate(paths)))


class Refusing(Match):
    """Never accepts, even what is right."""

    name = "refusing"

    def __call__(self, draft, rows, noise):
        return Verdict(tuple(() for _ in draft.trees), tuple(rows.pick(b, 0, noise) for b in range(len(draft))))


class Jumping(Match):
    """Accepts the last node without its parents."""

    name = "jumping"

    def __call__(self, draft, rows, noise):
        verdict = super().__call__(draft, rows, noise)
        return Verdict(tuple(path[-1:] for path in verdict.paths), verdict.bonus)


class Moody(Match):
    """Another verdict each time."""

    name = "moody"
    calls = 0

    def __call__(self, draft, rows, noise):
        self.calls += 1
        verdict = super().__call__(draft, rows, noise)
        return Verdict(tuple(() for _ in verdict.paths), (self.calls % 8,) * len(verdict.bonus))


class Gregarious(Match):
    """Judges all by the first sequence's row."""

    name = "gregarious"

    def __call__(self, draft, rows, noise):
        token = rows.pick(0, 0, noise)
        return Verdict(tuple(() for _ in draft.trees), (token,) * len(draft))


class Scribbling(Match):
    """Edits rows in place."""

    name = "scribbling"

    def __call__(self, draft, rows, noise):
        verdict = super().__call__(draft, rows, noise)
        rows.raw(0, 0)[0] += 1.0
        return verdict


@pytest.mark.parametrize("fault", [Trusting, Refusing, Jumping, Moody, Gregarious, Scribbling])
def test_faults_are_found(fault):
    assert fault.laws >= LAWS
    with pytest.raises((AssertionError, BrokenInvariant)) as found:
        check_verifier(fault)
    assert fault.name in str(found.value)
