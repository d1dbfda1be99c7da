"""Every step of every sequence in one Parquet file: the raw material for whoever writes a draft-length controller.

A row is one step of one sequence. What belongs to a node stands in lists of one length, the root first: it is no guess,
so its entries are null, and flattening the lists side by side gives one row a guess. `COLUMNS` says what each holds;
the same words are in the file, as metadata of its fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

from forerun.core.draft import Tree
from forerun.core.errors import SpecError, unknown
from forerun.core.protocols import StepTrace
from forerun.lab.arms import Listener

ROWS = 4096  # of a row group: so many are held before they are written
FACTS = ("workload", "prompt", "turn", "round", "arm")
PHASES = ("draft", "score", "verify", "commit")
COLUMNS: dict[str, tuple[str, str]] = {
    "workload": ("string", "set of prompts"),
    "prompt": ("string", "the prompt's name in it"),
    "turn": ("int32", "turn of the conversation, from 0"),
    "round": ("int32", "how often everything was asked before"),
    "arm": ("string", "who answered: a drafter's spec, or plain decoding"),
    "request": ("int64", "number of the request in its engine"),
    "index": ("int32", "which of several answers to one request"),
    "step": ("int32", "steps of this answer, or of the batch it ran in, before this one"),
    "position": ("int32", "tokens of the sequence before the step, prompt included: the place of the first new one"),
    "batch": ("int32", "sequences that decoded in this step"),
    "prefilled": ("int32", "prompt tokens that were read in the same forward"),
    "drafted": ("int32", "guesses in the tree"),
    "accepted": ("int32", "guesses that stood and were used"),
    "emitted": ("int32", "tokens that the answer gained: the accepted ones and the one after them, up to its end"),
    "law": ("string", "how siblings came to be: chosen, sampled, distinct or foreseen"),
    "tokens": ("list<int32>", "token of each node; node 0 is the root, the sequence's last token"),
    "parents": ("list<int32>", "parent of each node, -1 for the root"),
    "judged": ("list<bool>", "whether the node's parent stood, so that the target's answer met this guess"),
    "stood": ("list<bool>", "whether the guess stood; also behind the end of an answer, where it was not used"),
    "confidence": (
        "list<float>",
        "the drafter's probability of the node's token after its parent, of the draft model's own row at temperature 1 "
        "(of a lookup, by counts); null: it has none",
    ),
    "entropy": ("list<float>", "in nats, of the draft model's own row at temperature 1 (of a lookup, by counts)"),
    "path": ("list<int32>", "nodes that stood, from the root's child down"),
    **{f"{name}_s": ("double", f"seconds of the phase {name}, shared equally by the batch") for name in PHASES},
    "plan_depth": ("int32", "the plan's limit of tokens ahead on a path"),
    "plan_nodes": ("int32", "the plan's limit of guesses in a tree"),
    "plan_width": ("int32", "the plan's limit of children of a node"),
    "plan_confidence": ("double", "paths that the drafter thinks less likely than this are not continued"),
}
"""Name -> (type, meaning)."""


class StepLog:
    """A log that is there whole when the block is left, and not at all where it is left by an error.

    SpecError at once if pyarrow is missing, or `path` is no .parquet file that can be written. A measurement that goes
    on from an interrupted one logs only the steps that it runs itself.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._part = path.with_name(path.name + ".part")
        self._arrow, parquet = _arrow()
        if path.suffix != ".parquet":
            raise SpecError(f"steps are logged to a .parquet file, got {path}")
        if path.is_dir():
            raise SpecError(f"steps are logged to a file, {path} is a folder: give FILE.parquet")
        self._schema = _schema(self._arrow)
        self._rows: list[dict[str, object]] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = parquet.ParquetWriter(self._part, self._schema, compression="zstd")
        except OSError as error:
            with suppress(OSError):  # the folder itself may be what is wrong
                self._part.unlink(missing_ok=True)
            raise SpecError(f"steps cannot be logged to {path}: {error.strerror or error}") from error

    def __enter__(self) -> StepLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if kind is None:
                self._flush()
            self._writer.close()
            if kind is None:
                self._part.replace(self.path)
        except OSError as fault:
            if kind is None:
                raise SpecError(f"steps cannot be logged to {self.path}: {fault.strerror or fault}") from fault
        finally:
            self._part.unlink(missing_ok=True)

    def listener(self, facts: Mapping[str, object]) -> Listener:
        """Who writes down the steps of one answer, or of a batch; `facts` are those of FACTS that are known of it."""
        for name in facts:
            if name not in FACTS:
                raise unknown("fact of a step log", name, FACTS)
        steps = 0

        def hear(step: StepTrace) -> None:
            nonlocal steps
            for b in range(len(step.draft)):
                self._rows.append({**facts, "step": steps, **_row(step, b)})
            steps += 1
            if len(self._rows) >= ROWS:
                self._flush()

        return hear

    def _flush(self) -> None:
        if self._rows:
            try:
                self._writer.write_table(self._arrow.Table.from_pylist(self._rows, schema=self._schema))
            except OSError as error:
                raise SpecError(f"steps cannot be logged to {self.path}: {error.strerror or error}") from error
            self._rows.clear()


def _row(step: StepTrace, b: int) -> dict[str, object]:
    tree, path, plan = step.draft.trees[b], step.verdict.paths[b], step.plan
    request, index = step.answers[b]
    batch = len(step.draft)
    return {
        "request": request,
        "index": index,
        "position": step.lengths[b],
        "batch": batch,
        "prefilled": step.prefilled,
        "drafted": tree.drafted,
        "accepted": min(len(path), step.emitted[b]),
        "emitted": step.emitted[b],
        "law": tree.law,
        "path": path,
        **_nodes(tree, path),
        **{f"{name}_s": step.seconds[name] / batch for name in PHASES if name in step.seconds},
        "plan_depth": plan.depth,
        "plan_nodes": plan.nodes,
        "plan_width": plan.width,
        "plan_confidence": plan.confidence,
    }


def _nodes(tree: Tree, path: Sequence[int]) -> dict[str, Sequence[object]]:
    """The columns that have an entry a node."""
    standing, guesses = {0, *path}, range(1, len(tree))
    signals = [tree.signals.get(node) for node in guesses]
    return {
        "tokens": tree.tokens,
        "parents": tree.parents,
        "judged": [None, *(tree.parents[node] in standing for node in guesses)],
        "stood": [None, *(node in standing for node in guesses)],
        "confidence": [None, *(signal and signal.confidence for signal in signals)],
        "entropy": [None, *(signal and signal.entropy for signal in signals)],
    }


def _arrow() -> tuple[Any, Any]:
    """pyarrow and its Parquet part."""
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise SpecError('logging steps needs pyarrow, which is not installed: pip install "forerun[lab]"') from None


def _schema(arrow: Any) -> Any:
    def kind(name: str) -> Any:
        if name.startswith("list<"):
            return arrow.list_(kind(name[5:-1]))
        return getattr(arrow, {"float": "float32", "double": "float64", "bool": "bool_"}.get(name, name))()

    fields = [arrow.field(name, kind(type), metadata={"about": about}) for name, (type, about) in COLUMNS.items()]
    return arrow.schema(fields, metadata={"about": "forerun: one row a step and sequence"})
