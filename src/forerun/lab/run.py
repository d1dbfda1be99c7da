"""A measurement on its way to a results file: resumed where it was cut short, complete or not written at all.

The file is `{"schema", "experiment", "bench", "answers", "figures", "samples"}`. `bench` says where it comes from,
`answers` the five things without which a speed-up means nothing. While it runs, what was measured lies beside it in
`NAME.json.partial`, a line of JSON a unit; the same command goes on from there. Without a name nothing is kept.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from forerun.core.errors import LoadError, SpecError
from forerun.lab.machine import write_whole

SCHEMA = 1
BENCH = ("command", "date", "commit", "forerun", "python", "system", "processor", "cores", "load_average")
"""Fields of `bench` that every file must have."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answers:
    """The bench in five answers."""

    relative_to: str
    """What the figures are compared with."""
    batch: str
    """How many requests run at once."""
    stack: str
    """Model, runtime, formats, threads."""
    data: str
    """Which prompts, how many, how long the answers."""
    shape: str
    """How far drafts reach."""


@dataclass(frozen=True, slots=True)
class Result:
    """A results file that was read."""

    path: Path
    experiment: str
    bench: Mapping[str, Any]
    answers: Mapping[str, str]
    figures: Mapping[str, Any]
    samples: Sequence[Any]


class Run:
    """Units of work by key, kept as they are done. `ask` (JSON values) says what is measured: only a run of the same
    ask is gone on with. SpecError at once if `out` is no .json path or cannot be written."""

    def __init__(self, experiment: str, out: Path | None, ask: Mapping[str, object], *, resume: bool = True) -> None:
        self.experiment = experiment
        self.out = out
        self._ask = json.loads(json.dumps(ask, sort_keys=True))
        self._kept: dict[str, Any] = {}
        if out is not None:
            check_out(out)
            self._kept = self._read_partial() if resume else {}
            self.resumed = len(self._kept)
            self._start_partial()
        else:
            self.resumed = 0

    @property
    def partial(self) -> Path:
        """Where units are kept until the run is complete."""
        assert self.out is not None
        return self.out.with_name(self.out.name + ".partial")

    @property
    def done(self) -> int:
        """Units that are measured."""
        return len(self._kept)

    def unit(self, key: str, measure: Callable[[], Any]) -> Any:
        """The record (JSON values) of a unit: the one that was kept, or what `measure` returns, which is then kept."""
        if key not in self._kept:
            self._kept[key] = json.loads(json.dumps(measure(), allow_nan=False))
            if self.out is not None:
                self._append(json.dumps({"key": key, "value": self._kept[key]}))
        return self._kept[key]

    def track(self, units: Iterable[T], what: str) -> Iterator[T]:
        """`units` with a progress bar on a terminal."""
        from tqdm import tqdm

        yield from tqdm(list(units), desc=what, leave=False, file=sys.stderr, disable=not sys.stderr.isatty())

    def finish(
        self,
        bench: Mapping[str, object],
        answers: Answers,
        figures: Mapping[str, object],
        samples: Sequence[object],
    ) -> dict[str, Any]:
        """The whole result, written if it has a name; SpecError if anything is missing, and then nothing is written."""
        whole = {
            "schema": SCHEMA,
            "experiment": self.experiment,
            "bench": {**bench, "ask": self._ask, "resumed_units": self.resumed},
            "answers": asdict(answers),
            "figures": figures,
            "samples": samples,
        }
        check(whole)
        if self.out is not None:
            write_whole(self.out, dumped(whole))
            self.partial.unlink(missing_ok=True)
        found: dict[str, Any] = json.loads(json.dumps(whole))
        return found

    def discard(self) -> None:
        """Keep nothing of a run that did not measure anything yet."""
        if self.out is not None and not self._kept:
            self.partial.unlink(missing_ok=True)

    def _read_partial(self) -> dict[str, Any]:
        """Units of an earlier run of the same ask; a last line that was cut off is left out."""
        try:
            lines = self.partial.read_text(encoding="utf-8").splitlines()
        except OSError:
            return {}
        kept: dict[str, Any] = {}
        for i, line in enumerate(lines):
            try:
                record = json.loads(line)
            except ValueError:
                break
            if i == 0:
                if record != self._head:
                    return {}
            else:
                kept[record["key"]] = record["value"]
        return kept

    @property
    def _head(self) -> dict[str, object]:
        return {"schema": SCHEMA, "experiment": self.experiment, "ask": self._ask}

    def _start_partial(self) -> None:
        lines = [json.dumps(self._head), *(json.dumps({"key": k, "value": v}) for k, v in self._kept.items())]
        write_whole(self.partial, "\n".join(lines) + "\n")

    def _append(self, line: str) -> None:
        try:
            with self.partial.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            raise SpecError(f"cannot write {self.partial}: {error.strerror or error}") from error


def check_out(out: Path | None) -> None:
    """SpecError at once, before anything is loaded or measured, for a path that no results can be written to."""
    if out is None:
        return
    if out.suffix != ".json":
        raise SpecError(f"results go to a .json file, as results/NAME.json, got {out}")
    if out.is_dir():
        raise SpecError(f"results go to a file, {out} is a folder: give results/NAME.json")
    above = next(folder for folder in (out.parent, *out.parent.parents) if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise SpecError(f"results cannot be written to {out}: {above} is not a folder that can be written to")


def dumped(whole: Mapping[str, Any]) -> str:
    """The file's text: indented where people look, one line a sample."""
    head = json.dumps({key: value for key, value in whole.items() if key != "samples"}, indent=1, allow_nan=False)
    rows = ",\n  ".join(json.dumps(sample, allow_nan=False) for sample in whole["samples"])
    return f'{head[:-2]},\n "samples": [\n  {rows}\n ]\n}}\n'


def check(whole: Mapping[str, Any]) -> None:
    """SpecError naming what a result lacks."""
    missing = [f"bench.{name}" for name in BENCH if whole["bench"].get(name) in (None, "")]
    if "bench.commit" in missing and "commit" in whole["bench"]:
        missing.remove("bench.commit")  # an installed package has none, and says so by an empty one
    missing += [f"answers.{field.name}" for field in fields(Answers) if not whole["answers"].get(field.name)]
    missing += [name for name in ("figures", "samples") if not whole[name]]
    missing += [f"a finite number at {path}" for path in _odd(whole["figures"], "figures")]
    if missing:
        raise SpecError(f"nothing is written, the run is not complete: it lacks {', '.join(missing[:5])}")


def _odd(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, float) and not math.isfinite(value):
        yield path
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, inner in items:
        yield from _odd(inner, f"{path}.{key}")


def load_result(path: Path) -> Result:
    """A results file of this schema; LoadError for anything else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LoadError(f"there is no results file {path}; `forerun lab` commands write one with --out") from None
    except (OSError, ValueError) as error:
        raise LoadError(f"{path} cannot be read as a results file: {error}") from None
    schema = value.get("schema") if isinstance(value, dict) else None
    if schema != SCHEMA:
        command = value.get("bench", {}).get("command", "") if isinstance(value, dict) else ""
        again = f"; measure again: {command}" if command else ""
        raise LoadError(f"{path} has results schema {schema}, this version reads {SCHEMA}{again}")
    try:
        parts = [value[name] for name in ("experiment", "bench", "answers", "figures", "samples")]
        check(value)
    except (KeyError, TypeError, AttributeError) as error:
        raise LoadError(f"{path} is not a whole results file: {error} is missing or odd") from None
    except SpecError as error:
        raise LoadError(f"{path}: {error}") from None
    return Result(path, *parts)


def digest(path: Path) -> str:
    """First 16 hex digits of the file's SHA-256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
