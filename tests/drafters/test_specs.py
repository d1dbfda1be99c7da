"""What the text of a drafter says."""

import pytest

from forerun.core.errors import SpecError
from forerun.core.options import Spec
from forerun.core.plan import Plan
from forerun.drafters.names import DRAFTERS
from forerun.drafters.specs import Limits, describe_drafters, parts_of, split_plan


def test_a_text_says_how_far_what_is_shared_and_the_rest():
    plan, limits, own = split_plan(Spec.parse("eagle3:depth=3,nodes=5,rows=4,up_to=2,min_prob=0.5"))
    assert (plan.depth, plan.nodes) == (3, 5)
    assert limits == Limits(up_to=2, rows=4)
    assert own == {"min_prob": "0.5"}


@pytest.mark.parametrize("spec", ["ngram:width=2", "medusa:window=64", "medusa:level_rows=2", "p-eagle:level_rows=2"])
def test_an_option_of_another_drafter_is_refused(spec):
    with pytest.raises(SpecError, match=f"unknown .*{spec.partition(':')[2].partition('=')[0]}"):
        split_plan(Spec.parse(spec))


def test_parts_of_a_cascade_stand_in_order_with_their_brackets():
    assert parts_of("mixed", "ngram[min=3]+eagle3[depth=1;nodes=2]") == [
        Spec.parse("ngram:min=3"),
        Spec.parse("eagle3:depth=1,nodes=2"),
    ]
    for odd in ("", "ngram", "ngram+first_of", "ngram+nobody", "ngram[min=3+suffix"):
        with pytest.raises(SpecError):
            parts_of("mixed", odd)


def test_every_drafter_is_described():
    assert describe_drafters().keys() == DRAFTERS.keys()


def test_a_cascade_is_as_wide_as_its_parts():
    """Of lookups it makes chains, which every verifier and runtime takes."""
    assert split_plan(Spec.parse("first_of:of=prediction+ngram"))[0] == Plan(8, 256, 1)
    assert split_plan(Spec.parse("first_of:of=ngram+eagle3"))[0] == Plan(8, 256, 4)
    assert split_plan(Spec.parse("mixed:of=ngram+eagle3"))[0] == Plan(11, 11, 4)
    assert split_plan(Spec.parse("mixed:of=ngram+eagle3,width=2,nodes=7"))[0] == Plan(11, 7, 2)
