"""The block pool's promises: nothing leaks, nothing is shared wrongly, a lone sequence lies in one piece."""

from __future__ import annotations

import itertools
import random
import sys
from itertools import pairwise

import pytest

from forerun.cache.pool import BlockPool, Usage
from forerun.core.errors import BrokenInvariant, SpecError


def fill(pool: BlockPool, key: str, tokens: list[int]) -> int:
    """Open, make room, record; returns what was shared."""
    held = pool.open(key, tokens)
    assert pool.grow(key, held, len(tokens)) is not None
    pool.record(key, tokens)
    pool.check_integrity()
    return held


def test_a_second_sequence_shares_full_blocks_but_never_the_whole_prompt() -> None:
    pool = BlockPool(16, 4)
    assert fill(pool, "a", list(range(8))) == 0
    assert pool.open("b", list(range(8))) == 4  # the newest token must still be fed
    assert pool.open("c", list(range(9))) == 8
    assert pool.open("d", [0, 1, 2, 9, 4, 5, 6, 7, 8]) == 0
    assert pool.table("c").blocks == pool.table("a").blocks
    pool.check_integrity()


def test_a_block_is_only_shared_after_the_same_beginning() -> None:
    pool = BlockPool(16, 2)
    fill(pool, "a", [1, 2, 3, 4, 5])
    assert pool.open("b", [3, 4, 5, 6]) == 0


@pytest.mark.parametrize("size", [1, 4, 16])
def test_after_any_ending_the_free_count_is_what_it_was(size: int) -> None:
    pool = BlockPool(64 // size, size, remember=False)
    for round in range(200):
        tokens = [round, *range(20)]
        held = pool.open("a", tokens)
        pool.grow("a", held, 30)
        if round % 3:
            pool.record("a", tokens)
        if round % 4 == 0:
            pool.cut("a", 17)
        pool.close("a")
        assert pool.usage == Usage(0, 0, 64 // size)
        pool.check_integrity()


def test_remembered_blocks_stop_at_the_pool_and_are_evicted_when_needed() -> None:
    pool = BlockPool(8, 4)
    for round in range(200):
        fill(pool, "a", [round] * 13)
        pool.close("a")
        usage = pool.usage
        assert usage.used == 0 and usage.remembered + usage.free == 8
    assert pool.usage.remembered
    assert fill(pool, "b", list(range(1000, 1032))) == 0
    assert pool.usage == Usage(8, 0, 0)


def test_the_longest_unused_goes_first_and_ends_before_beginnings() -> None:
    pool = BlockPool(8, 1)
    for key, tokens in (("old", [1, 2, 3]), ("new", [4, 5, 6])):
        fill(pool, key, tokens)
        pool.close(key)
    fill(pool, "x", [7, 8, 9])
    assert pool.open("again", [1, 2, 3, 0]) == 2
    assert pool.open("newer", [4, 5, 6, 0]) == 3


def test_room_is_made_for_all_or_nothing() -> None:
    pool = BlockPool(4, 4)
    fill(pool, "a", list(range(9)))
    before = pool.usage
    pool.open("b", [])
    assert pool.grow("b", 0, 5) is None
    assert pool.usage == before and not pool.table("b").blocks
    assert pool.grow("b", 0, 4) == []
    pool.check_integrity()


def test_whoever_writes_into_a_shared_block_gets_one_of_its_own() -> None:
    pool = BlockPool(8, 4)
    fill(pool, "a", list(range(9)))
    fill(pool, "b", list(range(9)))
    pool.cut("b", 6)
    copies = pool.grow("b", 6, 8)
    assert copies == [(pool.table("a").blocks[1], pool.table("b").blocks[1])]
    pool.check_integrity()
    assert pool.open("c", list(range(9))) == 8


def test_a_rewritten_block_is_no_longer_found() -> None:
    pool = BlockPool(8, 4)
    fill(pool, "a", list(range(8)))
    pool.cut("a", 6)
    assert pool.grow("a", 6, 8) == []
    pool.record("a", [0, 1, 2, 3, 4, 5, 9, 9])
    assert pool.open("b", [0, 1, 2, 3, 4, 5, 6, 7, 8]) == 4
    assert pool.open("c", [0, 1, 2, 3, 4, 5, 9, 9, 8]) == 8
    pool.check_integrity()


@pytest.mark.parametrize("remember", [True, False])
def test_a_lone_sequence_lies_in_one_piece(remember: bool) -> None:
    pool = BlockPool(64, 4, remember)
    for round in range(4 if remember else 30):
        held = pool.open("a", [round] * 9)
        for length in range(9, 60):
            assert pool.grow("a", held, length) == []
        pool.record("a", [round] * 59)
        assert pool.table("a").in_one_piece
        pool.close("a")


def test_a_sequence_in_full_memory_lies_in_few_pieces() -> None:
    pool = BlockPool(512)
    for round in range(60):
        held = pool.open("a", [round] * 9)
        for length in range(150, 300):
            assert pool.grow("a", held, length) == []
        pool.record("a", [round] * 299)
        blocks = pool.table("a").blocks
        assert sum(b != a + 1 for a, b in pairwise(blocks)) <= 2
        pool.close("a")
    assert pool.usage.remembered > 300


def test_neighbours_leave_each_other_room_to_grow() -> None:
    pool = BlockPool(64, 4)
    for key in "abc":
        fill(pool, key, [ord(key)] * 9)
    for length in range(9, 32):
        for key in "abc":
            assert pool.grow(key, 9, length) == []
    assert all(pool.table(key).in_one_piece for key in "abc")


def test_opening_twice_and_empty_pools_are_refused() -> None:
    pool = BlockPool(2, 4)
    pool.open("a", [])
    with pytest.raises(BrokenInvariant, match="open already"):
        pool.open("a", [])
    with pytest.raises(SpecError, match="at least 1 block"):
        BlockPool(0)


@pytest.mark.parametrize("seed", range(20))
def test_integrity_under_random_use(seed: int) -> None:
    draw = random.Random(seed)
    size = draw.choice([1, 2, 4])
    pool = BlockPool(draw.choice([6, 20]), size, remember=draw.random() < 0.8)
    open_: dict[int, list[int]] = {}
    for key in range(300):
        if draw.random() < 0.3 or not open_:
            tokens = [draw.randrange(2) for _ in range(draw.randrange(1, 14))]
            open_[key] = tokens[: pool.open(key, tokens)]
            continue
        key = draw.choice(list(open_))
        tokens, action = open_[key], draw.randrange(4)
        if action == 0:
            pool.close(key)
            del open_[key]
        elif action == 1:
            del tokens[draw.randrange(len(tokens) + 1) :]
            pool.cut(key, len(tokens))
        else:
            more = [draw.randrange(2) for _ in range(draw.randrange(9))]
            before = pool.usage
            if pool.grow(key, len(tokens), len(tokens) + len(more)) is None:
                assert pool.usage == before
            else:
                tokens.extend(more)
                pool.record(key, tokens)
        pool.check_integrity()
    for key in open_:
        pool.close(key)
    pool.check_integrity()
    assert pool.usage.used == 0


def test_264_an_operation_that_is_broken_off_at_any_line_is_mended():
    """A trace function raises at each line of the pool in turn; then everything is closed, and nothing is lost."""

    def play(pool):
        for key in range(3):
            pool.open(key, [1, 2, 3, 4, key, 5])
            pool.grow(key, 0, 6)
            pool.record(key, [1, 2, 3, 4, key])
        pool.open(3, [1, 2, 3, 4, 5, 6])
        pool.grow(3, 3, 9)
        pool.cut(3, 2)
        pool.close(1)
        pool.open(4, [8] * 5)
        pool.grow(4, 0, 12)

    def broken_at(nth):
        lines = itertools.count()

        def trace(frame, event, arg):
            if not frame.f_code.co_filename.endswith("cache/pool.py"):
                return None
            if event == "line" and next(lines) == nth:
                raise KeyboardInterrupt
            return trace

        pool = BlockPool(12, 2)
        sys.settrace(trace)
        try:
            play(pool)
            return None
        except KeyboardInterrupt:
            return pool
        finally:
            sys.settrace(None)

    points = 0
    while pool := broken_at(points):
        points += 1
        for key in range(5):
            pool.close(key)
        pool.check_integrity()
        assert pool.usage.used == 0
        pool.open(9, [1, 2, 3, 4, 5])
        assert pool.grow(9, 0, 24) is not None
        pool.check_integrity()
    assert points > 200
