"""A measurement on its way to a results file: resumed where it was cut short, complete or not written at all.

The file is `{"schema", "experiment", "bench", "answers", "figures", "samples"}`. `bench` says where it comes from,
`answers` the five things without which a speed-up means nothing. While it runs, what was measured lies beside it in
`NAME.json.partial`, a line of JSON a unit; the same command goes on from there, and another one moves it aside. Without
a name nothing is kept.
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
from forerun.core.options import Spec
from forerun.lab import machine
from forerun.lab.machine import write_whole
from forerun.workloads.prompts import Workload

SCHEMA = 1
SOURCES = Path(__file__).resolve().parents[3]
"""The source tree, where it is one that we run from."""
BENCH = ("command", "date", "commit", "forerun", "python", "system", "processor", "cores", "load_average")
"""Fields of `bench` that every file must have."""
_UNKNOWN = (
    "commit",
    "load_average",
)  # may be empty: an installed package has no commit, not every system tells its load
_PARTS = {"experiment": str, "bench": dict, "answers": dict, "figures": dict, "samples": list}

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The bench in five answers."""

    relative_to: str = "plain decoding through the same engine, prompt by prompt in turn"
    """What the figures are compared with."""
    batch: str = "1"
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
    ask is gone on with. `opened` is the `machine.moment` at which it began, now if None. Without `resume` nothing is
    kept, and what another run left stays as it is. SpecError at once if `out` is no .json path, cannot be written, or
    lies where the shipped results do without `record`."""

    def __init__(
        self,
        experiment: str,
        out: Path | None,
        ask: Mapping[str, object],
        *,
        resume: bool = True,
        record: bool = False,
        opened: Mapping[str, object] | None = None,
    ) -> None:
        self.experiment = experiment
        self.out = out
        self.opened = dict(machine.moment() if opened is None else opened)
        self.keeps = out is not None and resume  # whether an interrupted run can be gone on with
        self.differs: tuple[str, ...] = ()  # in what an interrupted run was another one, which is moved aside then
        self._ask = json.loads(json.dumps(ask, sort_keys=True))
        self._kept: dict[str, Any] = {}
        check_out(out, record)
        if self.keeps:
            self._kept = self._read_partial()
            self._start_partial()
        self.resumed = len(self._kept)

    @property
    def partial(self) -> Path:
        """Where units are kept until the run is complete."""
        assert self.out is not None
        return self.out.with_name(self.out.name + ".partial")

    @property
    def aside(self) -> Path:
        """Where the units of an interrupted run of another ask are moved."""
        return self.partial.with_name(self.partial.name + ".old")

    @property
    def notices(self) -> list[str]:
        """What a person should know of interrupted runs, before this one begins."""
        said = []
        if self.resumed:
            said.append(f"going on with {self.partial}: {self.resumed} units are measured already")
        if self.differs:
            what = ", ".join(self.differs)
            said.append(
                f"{self.partial} is of a run with other {what}: it is kept as {self.aside}; this one begins anew"
            )
        return said

    @property
    def done(self) -> int:
        """Units that are measured."""
        return len(self._kept)

    def unit(self, key: str, measure: Callable[[], Any]) -> Any:
        """The record (JSON values) of a unit: the one that was kept, or what `measure` returns, which is then kept."""
        if key not in self._kept:
            self._kept[key] = json.loads(json.dumps(measure(), allow_nan=False))
            if self.keeps:
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
            "bench": {**bench, **self.opened, "ended": machine.now(), "ask": self._ask, "resumed_units": self.resumed},
            "answers": asdict(answers),
            "figures": figures,
            "samples": samples,
        }
        if missing := lacking(whole):
            raise SpecError(f"nothing is written, the run is not complete: it lacks {', '.join(missing[:5])}")
        if self.out is not None:
            write_whole(self.out, dumped(whole))
        if self.keeps:
            self.partial.unlink(missing_ok=True)
        found: dict[str, Any] = json.loads(json.dumps(whole))
        return found

    def discard(self) -> None:
        """Keep nothing of a run that did not measure anything yet; what it moved aside comes back."""
        if self.keeps and not self._kept:
            self.partial.unlink(missing_ok=True)
            if self.differs:
                self.aside.replace(self.partial)

    def _read_partial(self) -> dict[str, Any]:
        """Units of an earlier run of the same ask; a last line that was cut off is left out. Those of another ask are
        moved aside."""
        try:
            head, *lines = self.partial.read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError):  # none, an empty one, or no text
            return {}
        self.differs = differing(_parsed(head), self._head) if lines else ()
        if self.differs:
            try:
                self.partial.replace(self.aside)
            except OSError as error:
                raise SpecError(f"{self.partial} cannot be moved aside: {error.strerror or error}") from error
            return {}
        kept: dict[str, Any] = {}
        for record in map(_parsed, lines):
            if not isinstance(record, dict):
                break
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


def facts(
    opened: Mapping[str, object], workloads: Sequence[Workload] = (), drafters: Sequence[str] = ()
) -> dict[str, object]:
    """What an ask has to hold beside options, since they do not tell it: our sources at the moment `opened`, the
    processor, the texts of the prompts, the files that drafters are made from."""
    from forerun import __version__

    paths = {spec: str(Spec.parse(spec).values.get("path") or "") for spec in drafters}
    return {
        "forerun": __version__,
        "commit": opened["commit"],
        "dirty": opened["dirty"],
        "processor": machine.processor(),
        "prompt_digests": {work.name: work.digest for work in workloads},
        "drafter_files": {spec: found for spec, path in paths.items() if path and (found := mark(Path(path)))},
    }


def mark(path: Path) -> str | None:
    """16 hexadecimal digits that change with the name, size or time of a file, or of any file in a folder; None where
    there is nothing, as behind a name of the hub. A model is not read for it."""
    path = Path(os.path.expanduser(path))
    try:
        entries = sorted(path.iterdir()) if path.is_dir() else [path]
        said = [(entry.name, status.st_size, status.st_mtime_ns) for entry in entries if (status := entry.stat())]
    except OSError:
        return None
    return hashlib.sha256(repr(said).encode()).hexdigest()[:16]


def differing(found: object, wanted: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of what two heads of runs do not have in common: fields of the ask, or what the whole run is."""
    if not isinstance(found, dict) or not isinstance(found.get("ask"), dict):
        return ("form",)
    whole = [name for name in ("schema", "experiment") if found.get(name) != wanted[name]]
    one, other = found["ask"], wanted["ask"]
    names = [name for name in {**one, **other} if (name in one, one.get(name)) != (name in other, other.get(name))]
    return (*whole, *names)


def _parsed(line: str) -> Any:
    """A line's JSON value; None for one that was cut off."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def check_out(out: Path | None, record: bool = False) -> None:
    """SpecError at once, before anything is loaded or measured, for a path that no results can be written to, or only
    to `record` them among those that ship with the sources."""
    if out is None:
        return
    if out.suffix != ".json":
        raise SpecError(f"results go to a .json file, as measured/NAME.json, got {out}")
    if os.path.isdir(out):  # unlike the methods of a path, false for names that the system does not take
        raise SpecError(f"results go to a file, {out} is a folder: give measured/NAME.json")
    if not record and shipped(out):
        raise SpecError(
            f"{out} lies among the results that ship with forerun: give another file, as measured/{out.name}, "
            "or --record to replace what the README tells"
        )
    above = next(folder for folder in (out.parent, *out.parent.parents) if os.path.exists(folder))
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise SpecError(f"results cannot be written to {out}: {above} is not a folder that can be written to")


def shipped(out: Path) -> bool:
    """Whether a file lies among the results in the source tree that we run from, by whatever way it is named."""
    results = os.path.realpath(SOURCES / "results")
    return (SOURCES / "src" / "forerun").is_dir() and os.path.realpath(out).startswith(results + os.sep)


def dumped(whole: Mapping[str, Any]) -> str:
    """The file's text: indented where people look, one line a sample."""
    head = json.dumps({key: value for key, value in whole.items() if key != "samples"}, indent=1, allow_nan=False)
    rows = ",\n  ".join(json.dumps(sample, allow_nan=False) for sample in whole["samples"])
    return f'{head[:-2]},\n "samples": [\n  {rows}\n ]\n}}\n'


def lacking(whole: Mapping[str, Any]) -> list[str]:
    """What a result lacks, by name."""
    bench, said = whole["bench"], whole["answers"]
    missing = [
        f"bench.{name}" for name in BENCH if name not in bench or (bench[name] in (None, "") and name not in _UNKNOWN)
    ]
    missing += [f"answers.{field.name}" for field in fields(Answers) if not said.get(field.name)]
    missing += [name for name in ("figures", "samples") if not whole[name]]
    return missing + [f"a finite number at {path}" for path in _odd(whole["figures"], "figures")]


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
    except (OSError, ValueError, RecursionError) as error:
        raise LoadError(f"{path} cannot be read as a results file: {error}") from None
    schema = value.get("schema") if isinstance(value, dict) else None
    if schema != SCHEMA:
        bench = value.get("bench") if isinstance(value, dict) else None
        command = bench.get("command") if isinstance(bench, dict) else None
        again = f"; measure again: {command}" if command else ""
        raise LoadError(f"{path} has results schema {schema}, this version reads {SCHEMA}{again}")
    for name, kind in _PARTS.items():
        if not isinstance(value.get(name), kind):
            raise LoadError(f"{path} is not a whole results file: {name!r} is missing or odd")
    if missing := lacking(value):
        raise LoadError(f"{path} is not a whole results file: it lacks {', '.join(missing[:5])}")
    return Result(path, *[value[name] for name in _PARTS])


def digest(path: Path) -> str:
    """First 16 hex digits of the file's SHA-256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
