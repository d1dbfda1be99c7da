"""A static tree: which ranks of each node's children are drafted, whatever the text.

A node is the path of ranks that leads to it: (0,) is the likeliest child of the root, (0, 2) its third likeliest child.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from forerun.core.errors import SpecError
from forerun.core.plan import MAX_NODES

Path_ = tuple[int, ...]


@dataclass(frozen=True)
class Shape:
    """Nodes by their rank paths, shallower first, then in order of ranks; the root is not among them.

    SpecError unless every node's parent, and the sibling before it, is there too.
    """

    paths: tuple[Path_, ...]

    def __post_init__(self) -> None:
        known = set(self.paths)
        if len(known) != len(self.paths) or len(known) > MAX_NODES:
            raise SpecError(f"a tree has each node once and at most {MAX_NODES} of them, got {len(self.paths)}")
        for path in self.paths:
            if not path or min(path) < 0:
                raise SpecError(f"a node of a tree is a path of ranks from 0 up, got {list(path)}")
            before = (*path[:-1], path[-1] - 1)
            if (len(path) > 1 and path[:-1] not in known) or (path[-1] and before not in known):
                raise SpecError(f"node {list(path)} of the tree has no parent, or no sibling before it")
        object.__setattr__(self, "paths", tuple(sorted(self.paths, key=lambda path: (len(path), path))))

    @classmethod
    def of(cls, paths: Iterable[Sequence[int]]) -> Shape:
        """A shape of these paths in any order."""
        return cls(tuple(tuple(path) for path in paths))

    @classmethod
    def chain(cls, depth: int) -> Shape:
        """One branch."""
        return cls(tuple((0,) * d for d in range(1, depth + 1)))

    @classmethod
    def from_file(cls, path: Path) -> Shape:
        """A JSON list of rank paths, as Medusa and EAGLE write their trees; SpecError for anything else."""
        try:
            said = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise SpecError(f"{path} holds no tree: {error}") from error
        fine = isinstance(said, list) and all(
            isinstance(p, list) and all(isinstance(r, int) and not isinstance(r, bool) for r in p) for p in said
        )
        if not fine:
            raise SpecError(f"{path} holds no tree: a JSON list of rank paths, as [[0], [1], [0, 0]], is wanted")
        return cls.of(said)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def depth(self) -> int:
        """Distance of the deepest node from the root."""
        return max(map(len, self.paths), default=0)

    @cached_property
    def children(self) -> dict[Path_, int]:
        """How many children each node that has any has; () is the root."""
        counts: dict[Path_, int] = {}
        for path in self.paths:
            counts[path[:-1]] = counts.get(path[:-1], 0) + 1
        return counts

    @property
    def width(self) -> int:
        """Most children of a node."""
        return max(self.children.values(), default=0)

    @property
    def steps(self) -> int:
        """Forwards that a drafter needs which reads its own guesses: one for each level with children."""
        return self.depth
