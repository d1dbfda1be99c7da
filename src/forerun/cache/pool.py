"""Who owns which block of KV memory: bookkeeping in plain Python, no tensors.

A sequence's table lists its blocks; block i holds its tokens [i * size, (i + 1) * size). Full blocks whose contents are
final are recorded under (the record of the block before, their tokens), so a later sequence with the same beginning
shares them; keys are compared whole, so no hash collision can share wrong memory. When the last owner closes, recorded
blocks are remembered in order of last use until their memory is needed. Blocks are handed out one after another where
possible: a lone sequence then lies in one piece and its keys can be read without copying.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Concatenate, ParamSpec, TypeVar

from forerun.core.errors import BrokenInvariant, SpecError

ROOT = 0  # the record before the first block
EVICT_SHARE = 8  # memory is freed by eighths of the pool, so that what follows lies in few pieces

Key = tuple[int, tuple[int, ...]]
Args = ParamSpec("Args")
T = TypeVar("T")


@dataclass(slots=True)
class Table:
    """One sequence's blocks in order, and the records of the leading ones that are full and final."""

    blocks: list[int] = field(default_factory=list)
    records: list[int] = field(default_factory=list)
    in_one_piece: bool = True

    def append(self, block: int) -> None:
        self.in_one_piece = self.in_one_piece and (not self.blocks or block == self.blocks[-1] + 1)
        self.blocks.append(block)


@dataclass(frozen=True, slots=True)
class Usage:
    """Blocks of a pool by state; they add up to all."""

    used: int
    remembered: int
    free: int


def _changes(run: Callable[Concatenate[BlockPool, Args], T]) -> Callable[Concatenate[BlockPool, Args], T]:
    """For what changes a pool: if it is broken off (an interruption between two lines), the next one mends first."""

    def whole(self: BlockPool, /, *args: Args.args, **named: Args.kwargs) -> T:
        if self._half_done:
            self._mend()
        self._half_done = True
        result = run(self, *args, **named)
        self._half_done = False
        return result

    whole.__doc__ = run.__doc__
    return whole


class BlockPool:
    """`blocks` blocks of `block_size` tokens. With `remember` off nothing outlives its owners."""

    def __init__(self, blocks: int, block_size: int = 16, remember: bool = True) -> None:
        if blocks < 1 or block_size < 1:
            raise SpecError(f"a pool needs at least 1 block of 1 token, got {blocks} of {block_size}")
        self.blocks = blocks
        self.block_size = block_size
        self.remember = remember
        self._owners = [0] * blocks
        self._is_free = bytearray(b"\x01" * blocks)
        self._free = blocks
        self._remembered: dict[int, None] = {}  # oldest first
        self._tables: dict[Hashable, Table] = {}
        self._found: dict[Key, tuple[int, int]] = {}  # -> (record, block)
        self._key_of: dict[int, Key] = {}  # recorded block -> its key
        self._next_record = ROOT + 1
        self._half_done = False

    @property
    def usage(self) -> Usage:
        """How many blocks are used, remembered and free."""
        remembered = len(self._remembered)
        return Usage(self.blocks - self._free - remembered, remembered, self._free)

    def table(self, key: Hashable) -> Table:
        """An open sequence's table; to be read only."""
        return self._tables[key]

    def __contains__(self, key: Hashable) -> bool:
        return key in self._tables

    @_changes
    def open(self, key: Hashable, tokens: Sequence[int]) -> int:
        """Open a table; returns how many leading tokens are in memory already: whole blocks, never all of `tokens`."""
        if key in self._tables:
            raise BrokenInvariant(f"{key!r} is open already: release it before it begins again")
        table = self._tables[key] = Table()
        for record, block in self._known(tokens):
            self._own(block)
            table.append(block)
            table.records.append(record)
        return len(table.blocks) * self.block_size

    def known(self, tokens: Sequence[int]) -> int:
        """How many leading tokens `open` would find in memory."""
        return sum(self.block_size for _ in self._known(tokens))

    def _known(self, tokens: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Record and block of each leading block of `tokens` that is in memory."""
        size, record = self.block_size, ROOT
        for start in range(0, len(tokens) - size, size):
            hit = self._found.get((record, tuple(tokens[start : start + size])))
            if hit is None:
                return
            record, block = hit
            yield record, block

    @_changes
    def grow(self, key: Hashable, held: int, length: int) -> list[tuple[int, int]] | None:
        """Make room to write tokens [held, length): all or nothing, None if there is no room.

        Returns the blocks (from, to) whose contents must be copied: a shared block is never written to, its writer
        gets one of its own.
        """
        table = self._tables[key]
        first = held // self.block_size
        split = first < len(table.blocks) and self._owners[table.blocks[first]] > 1
        need = max(0, -(-length // self.block_size) - len(table.blocks)) + split
        if not self._make_room(need):
            return None
        copies = [self._split(table, first)] if split else []
        if first < len(table.blocks):
            self._forget(table.blocks[first])
        for _ in range(need - split):
            table.append(self._take(table.blocks[-1] if table.blocks else None))
        return copies

    @_changes
    def record(self, key: Hashable, tokens: Sequence[int]) -> None:
        """The first `len(tokens)` tokens are in memory for good: full blocks of them may be shared from now on."""
        table, size = self._tables[key], self.block_size
        for i in range(len(table.records), len(tokens) // size):
            parent = table.records[-1] if table.records else ROOT
            at = (parent, tuple(tokens[i * size : (i + 1) * size]))
            if at not in self._found:
                self._found[at] = (self._next_record, table.blocks[i])
                self._key_of[table.blocks[i]] = at
                self._next_record += 1
            table.records.append(self._found[at][0])

    @_changes
    def cut(self, key: Hashable, length: int) -> None:
        """Give back all blocks that hold none of the first `length` tokens."""
        self._cut(self._tables[key], length)

    def _cut(self, table: Table, length: int) -> None:
        keep = -(-length // self.block_size)
        gone = table.blocks[keep:]
        del table.blocks[keep:], table.records[length // self.block_size :]
        if gone and not table.in_one_piece:
            table.in_one_piece = all(b == a + 1 for a, b in zip(table.blocks, table.blocks[1:], strict=False))
        for block in reversed(gone):  # ends go before beginnings: a beginning without its end is still of use
            self._disown(block)

    @_changes
    def close(self, key: Hashable) -> None:
        """Give back everything a sequence has, if it is open."""
        if key in self._tables:
            self._cut(self._tables[key], 0)
            del self._tables[key]

    def _mend(self) -> None:
        """Count owners anew by the tables and forget the contents of all blocks, which may be half noted."""
        self._owners = [0] * self.blocks
        for table in self._tables.values():
            table.records.clear()
            for block in table.blocks:
                self._owners[block] += 1
        for known in (self._remembered, self._found, self._key_of):
            known.clear()
        self._is_free = bytearray(not owners for owners in self._owners)
        self._free = self._owners.count(0)

    def check_integrity(self) -> None:
        """Raise BrokenInvariant unless every block is free, remembered or owned as often as tables list it."""
        counted = [0] * self.blocks
        for table in self._tables.values():
            for block in table.blocks:
                counted[block] += 1
        free = {block for block in range(self.blocks) if self._is_free[block]}
        idle = {block for block in range(self.blocks) if not counted[block]}
        if counted != self._owners:
            raise BrokenInvariant("KV blocks are owned otherwise than the tables say")
        if len(free) != self._free or free & set(self._remembered) or free | set(self._remembered) != idle:
            raise BrokenInvariant(f"of {len(idle)} idle KV blocks {self._free} are free, {len(self._remembered)} kept")
        if {block: at for at, (_, block) in self._found.items()} != self._key_of or free & set(self._key_of):
            raise BrokenInvariant("the records of KV blocks point at other blocks")

    def _own(self, block: int) -> None:
        self._owners[block] += 1
        self._remembered.pop(block, None)

    def _disown(self, block: int) -> None:
        self._owners[block] -= 1
        if self._owners[block]:
            return
        if self.remember and block in self._key_of:
            self._remembered[block] = None
        else:
            self._forget(block)
            self._is_free[block] = 1
            self._free += 1

    def _forget(self, block: int) -> None:
        """The block's contents are no longer to be found."""
        at = self._key_of.pop(block, None)
        if at is not None:
            del self._found[at]

    def _split(self, table: Table, index: int) -> tuple[int, int]:
        old = table.blocks[index]
        new = self._take(table.blocks[index - 1] if index else None)
        table.blocks[index] = new
        table.in_one_piece = False
        self._disown(old)
        return old, new

    def _make_room(self, need: int) -> bool:
        """See that `need` blocks are free, forgetting the longest unused; False, and nothing changed, if impossible."""
        if need <= self._free:
            return True
        if need > self._free + len(self._remembered):
            return False
        lot = max(1, self.blocks // EVICT_SHARE)
        while self._free < need or (self._remembered and len(self._longest_run()) < lot):
            for block in list(islice(self._remembered, max(1, lot // 4))):
                del self._remembered[block]
                self._forget(block)
                self._is_free[block] = 1
                self._free += 1
        return True

    def _take(self, after: int | None) -> int:
        """A free block: the one after `after` if it can be had, else one with much free room behind it."""
        block = self._fresh_start() if after is None else after + 1
        if block >= self.blocks or not self._is_free[block]:
            block = self._fresh_start()
        self._is_free[block] = 0
        self._free -= 1
        self._owners[block] = 1
        return block

    def _fresh_start(self) -> int:
        """In the longest free run: its first block, or its middle if whoever is before it may want to grow."""
        longest = self._longest_run()
        start = self._is_free.find(longest)
        crowded = start and self._owners[start - 1]
        return start + (len(longest) // 2 if crowded else 0)

    def _longest_run(self) -> bytearray:
        return max(self._is_free.split(b"\x00"))
