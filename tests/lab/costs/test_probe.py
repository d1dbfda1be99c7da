"""EAGLE's automatic node count: the rule of its source, and the timing through a real target."""

import pytest

from forerun.lab.costs.probe import CANDIDATES, Probed, probe


@pytest.mark.parametrize(
    ("ms", "nodes"),
    [
        ({40: 10.0, 48: 10.0, 50: 10.0, 56: 10.0, 60: 10.0}, 59),  # rows are free: the most of them
        ({40: 10.0, 48: 12.0, 50: 12.5, 56: 14.0, 60: 15.0}, 39),  # each row costs its share: the fewest
        ({40: 10.0, 48: 10.2, 50: 12.5, 56: 14.0, 60: 15.0}, 47),  # a step between 48 and 50
    ],
)
def test_the_least_time_for_its_weight_is_taken(ms, nodes):
    probed = Probed(ms)
    assert probed.nodes == nodes
    assert probed.to_json()["nodes"] == nodes


def test_a_target_is_timed_and_left_as_it_was(bench):
    probed = probe(bench.target, forwards=2)
    assert set(probed.ms) == set(CANDIDATES)
    assert min(probed.ms.values()) > 0
    bench.target.pool.check_integrity()
    assert bench.plain().answer([[97, 98]], {"max_tokens": 4}).emitted == 4


def test_a_context_that_is_too_short_has_none(bench, monkeypatch):
    monkeypatch.setattr("forerun.lab.costs.probe.CANDIDATES", {40: 1.0, 300: 2.0})
    assert probe(bench.target) is None
