"""What a report shows, before anybody draws it: a section a results file, and what must be said of the files together.

Every table and chart is of one file, so of one bench. Files of different benches may stand on one page, but then the
page says in what they differ: figures of one are no measure for another's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.core.errors import LoadError, SpecError
from forerun.lab.experiments import views
from forerun.lab.page import charts
from forerun.lab.run import Result, digest, load_result
from forerun.lab.views import Chart, Note, View

BENCH = {
    "machine": ("processor", "cores", "gpu"),
    "model": ("model", "fingerprint"),
    "stack": ("runtime", "weights", "kv", "isa", "threads", "device", "torch"),
    "code": ("forerun", "commit"),
}
"""What makes two benches different, by what it is of."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart that was drawn."""

    chart: Chart
    svg: str


@dataclass(frozen=True, slots=True)
class Section:
    """One results file."""

    result: Result
    digest: str
    """First hex digits of the file's SHA-256."""
    parts: tuple[View | Picture, ...]
    """In order; a chart that could not be drawn is a note."""
    warnings: tuple[str, ...]

    @property
    def title(self) -> str:
        """The experiment and the model."""
        model = self.result.bench.get("model")
        return f"{self.result.experiment}: {model}" if model else self.result.experiment


@dataclass(frozen=True, slots=True)
class Report:
    """All sections, and what must be said of them together."""

    sections: tuple[Section, ...]
    warnings: tuple[str, ...]


def make(files: Sequence[Path]) -> Report:
    """Read and draw everything; LoadError or SpecError naming the first file that cannot be used."""
    doubles = {str(path) for path in files if files.count(path) > 1}
    if doubles:
        raise SpecError(f"{min(doubles)} is given twice: a report shows a file once")
    sections = tuple(section(path, f"c{i}") for i, path in enumerate(files, start=1))
    return Report(sections, tuple(different([found.result for found in sections])))


def section(path: Path, name: str) -> Section:
    """One file's section; ids of its charts begin with `name`."""
    result = load_result(path)
    try:
        found = views(result.experiment, result.figures)
    except SpecError as error:
        raise LoadError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise LoadError(f"{path}: its figures are not those of {result.experiment!r}: {error!r}") from None
    parts = tuple(drawn(view, f"{name}-{i}") for i, view in enumerate(found, start=1))
    return Section(result, digest(path), parts, tuple(alone(result)))


def drawn(view: View, name: str) -> View | Picture:
    """A chart as a picture whose ids begin with `name`, a note where it cannot be drawn; all else as it is."""
    if not isinstance(view, Chart):
        return view
    try:
        return Picture(view, charts.svg(view, name))
    except SpecError as error:
        return Note(f"No picture of {view.title!r}: {error}")


def alone(result: Result) -> Iterator[str]:
    """What a reader of this file alone must know."""
    bench = result.bench
    restless = list(_restless(result.figures))
    if restless:
        yield (
            "The machine was not quiet: two runs of the same arm differ by more than they should "
            f"({', '.join(restless[:3])}). Small differences of this file mean nothing."
        )
    if bench.get("dirty"):
        yield "Measured with sources that were changed since the commit that is named."
    load = bench.get("load_average")
    if isinstance(load, list) and load and load[0] > 1.5 * bench["cores"]:
        yield f"The load average was {load[0]:.1f} on {bench['cores']} cores: others were at work."
    if bench.get("resumed_units"):
        yield f"Measured in more than one go: {bench['resumed_units']} units are of an earlier one."


def _restless(figures: Any, path: str = "") -> Iterator[str]:
    """Where a noise floor says that it is none."""
    if isinstance(figures, Mapping):
        if figures.get("calm") is False:
            yield path or "all"
        for name, inner in figures.items():
            yield from _restless(inner, f"{path}.{name}" if path else str(name))


def different(results: Sequence[Result]) -> Iterator[str]:
    """In what the files' benches differ, a sentence each; nothing for files of one bench."""
    for what, fields in BENCH.items():
        kinds: dict[tuple[str, ...], list[str]] = {}
        for result in results:
            known = tuple(f"{name} {_short(name, result.bench[name])}" for name in fields if name in result.bench)
            kinds.setdefault(known, []).append(result.path.name)
        if len(kinds) > 1:
            said = "; ".join(f"{', '.join(names)}: {', '.join(known) or 'not said'}" for known, names in kinds.items())
            yield f"Not all files are of one {what}, so their figures must not be compared with one another. {said}."


def _short(name: str, value: object) -> object:
    return str(value)[:12] if name in ("commit", "fingerprint") else "none" if value is None else value
