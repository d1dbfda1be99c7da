"""Whether a text says what the results files say: every claim, as rounded, of the very run that the text is about.

A number is right if the file's value, turned into the unit that is written, rounds to the digits that are written. A
text names the run of each file that it uses (`<!-- run: domains.json 3f2a9c1b -->`), so that a file which was measured
again is noticed even where the digits are still the same. Tables that are declared are made anew, and compared whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.core.errors import LoadError, SpecError
from forerun.lab.claims.agree import wrong
from forerun.lab.claims.notation import Marks, Pin, marks_of
from forerun.lab.claims.sidecar import joined, parted, sidecar_of
from forerun.lab.claims.tables import Made, made, rewritten, stale
from forerun.lab.machine import write_whole
from forerun.lab.run import digest, load_result

HTML = frozenset([".html", ".htm", ".xhtml", ".svg"])
"""Endings of files that are read as HTML; all others are Markdown."""

_DIGEST = 8  # hex digits of a pin


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong in a line of a text."""

    text: Path
    line: int
    """From 1; 0 for the file itself."""
    what: str
    pin: bool = False
    """Whether naming the run again is all that is needed."""

    def __str__(self) -> str:
        return f"{self.text}:{self.line}: {self.what}" if self.line else f"{self.text}: {self.what}"


@dataclass(frozen=True, slots=True)
class Report:
    """What a check found."""

    texts: int
    claims: int
    """Figures that are claimed, and those of tables that were made."""
    results: tuple[str, ...]
    """Results files that claims are about."""
    faults: tuple[Fault, ...]
    unmarked: tuple[Fault, ...]
    """Figures that carry no claim: no faults, unless every figure is to have one."""

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "texts": self.texts,
            "claims": self.claims,
            "results": list(self.results),
            "faults": [str(fault) for fault in self.faults],
            "unmarked": len(self.unmarked),
        }


def check(texts: Sequence[Path], results: Path) -> Report:
    """Hold texts against the results files in the folder `results`; SpecError if there is no such folder."""
    if not results.is_dir():
        raise SpecError(f"there is no folder {results} with results files: name it with --results")
    shelf = _Shelf(results)
    claims, used = 0, set()
    faults: list[Fault] = []
    unmarked: list[Fault] = []
    for path in texts:
        try:
            text, marks = _read(path)
            tables = _tables(path, text, shelf)
        except (LoadError, SpecError) as error:
            faults.append(Fault(path, 0, str(error)))
            continue
        uses = _uses(marks, tables)
        claims += len(uses)
        used |= {file for file, _ in uses}
        wrong = _faults(path, marks, uses, shelf)
        wrong += [Fault(path, line, what) for table in tables for line, what in stale(text, table)]
        faults += sorted(wrong, key=lambda fault: fault.line)
        unmarked += [Fault(path, flaw.line, flaw.text) for flaw in marks.unmarked if not _within(flaw.line, tables)]
    return Report(len(texts), claims, tuple(sorted(used)), tuple(faults), tuple(unmarked))


def pin(texts: Sequence[Path], results: Path) -> list[Path]:
    """Let each text name the runs that its claims are about; returns those that were written.

    SpecError, and nothing is written, if anything else is wrong with one of them.
    """
    report = check(texts, results)
    if wrong := [fault for fault in report.faults if not fault.pin]:
        raise SpecError(f"runs are named once all claims agree; {len(wrong)} do not, the first: {wrong[0]}")
    written = []
    for path in dict.fromkeys(fault.text for fault in report.faults):
        text, marks = _read(path)
        uses = _uses(marks, _tables(path, text, _Shelf(results)))
        names = dict.fromkeys(file for file, _ in uses) | dict.fromkeys(p.file for p in marks.pins)
        lines = {name: f"<!-- run: {name} {digest(results / name)[:_DIGEST]} -->" for name in names}
        for old in reversed(marks.pins):
            again = old.file in [other.file for other in marks.pins if other.start < old.start]
            text = text[: old.start] + ("" if again else lines[old.file]) + text[old.end :]
        pinned = {old.file for old in marks.pins}
        _written(path, _appended(path, text, [line for name, line in lines.items() if name not in pinned]))
        written.append(path)
    return written


def _appended(path: Path, text: str, lines: list[str]) -> str:
    if not lines:
        return text
    end = "\r\n" if "\r\n" in text else "\n"
    block = "".join(line + end for line in lines)
    if path.suffix.lower() in HTML and (
        tag := re.search(r"</(?:body|html|svg)\s*>\s*(?:</html\s*>\s*)?\Z", text, re.I)
    ):
        return text[: tag.start()] + block + text[tag.start() :]
    return text.rstrip("\r\n") + end + end + block


def _read(path: Path) -> tuple[str, Marks]:
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise LoadError(f"is not UTF-8 (byte {error.start})") from None
    except OSError as error:
        raise LoadError(f"cannot be read: {error.strerror or error}") from None
    if (beside := sidecar_of(path)).exists():
        text = joined(text, beside.read_text(encoding="utf-8"))
    return text, marks_of(text, path.suffix.lower() in HTML)


def _written(path: Path, text: str) -> None:
    """Write a text with its claims, those in a sidecar that were read there."""
    if (beside := sidecar_of(path)).exists():
        text, claims = parted(text)
        write_whole(beside, claims)
    write_whole(path, text)


def remade(texts: Sequence[Path], results: Path) -> list[Path]:
    """Write the declared tables of pages anew; returns the pages that changed."""
    shelf, changed = _Shelf(results), []
    for path in texts:
        text = path.read_text(encoding="utf-8")
        if (whole := rewritten(text, _tables(path, text, shelf))) != text:
            write_whole(path, whole)
            changed.append(path)
    return changed


def part(texts: Sequence[Path]) -> list[Path]:
    """Move the claims of Markdown pages into sidecars; returns those that were written."""
    moved = []
    for path in texts:
        text, claims = parted(_read(path)[0])
        if claims and path.suffix.lower() not in HTML:
            write_whole(sidecar_of(path), claims)
            write_whole(path, text)
            moved.append(path)
    return moved


class _Shelf:
    """The results files of a folder, each read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, Mapping[str, Any] | str] = {}
        self._digests: dict[str, str] = {}

    def get(self, name: str) -> Mapping[str, Any]:
        """A whole file; LoadError for one that cannot be used."""
        if name not in self._read:
            try:
                found = load_result(self.folder / name)
                self._digests[name] = digest(self.folder / name)[:_DIGEST]
                fields = ("experiment", "bench", "answers", "figures", "samples")
                self._read[name] = {field: getattr(found, field) for field in fields}
            except LoadError as error:
                self._read[name] = str(error)
        value = self._read[name]
        if isinstance(value, str):
            raise LoadError(value)
        return value

    def digest(self, name: str) -> str:
        """What a pin of the file says; LoadError for a file that cannot be used."""
        self.get(name)
        return self._digests[name]


def _tables(path: Path, text: str, shelf: _Shelf) -> list[Made]:
    return [] if path.suffix.lower() in HTML else made(path, text, shelf.get)


def _uses(marks: Marks, tables: Sequence[Made]) -> list[tuple[str, int]]:
    """The file of each figure of a text, and its line: claims, then tables."""
    return [(claim.file, claim.line) for claim in marks.claims] + [
        (file, table.line) for table in tables for file in table.files
    ]


def _within(line: int, tables: Sequence[Made]) -> bool:
    return any(table.line <= line < table.line + len(table.lines) for table in tables)


def _faults(path: Path, marks: Marks, uses: Sequence[tuple[str, int]], shelf: _Shelf) -> list[Fault]:
    faults = [Fault(path, flaw.line, flaw.text) for flaw in marks.flaws]
    first = dict(reversed(uses))
    for name in dict.fromkeys([*(file for file, _ in uses), *(pin.file for pin in marks.pins)]):
        claims = [claim for claim in marks.claims if claim.file == name]
        pins = [pin for pin in marks.pins if pin.file == name]
        try:
            whole, run = shelf.get(name), shelf.digest(name)
        except LoadError as error:
            faults.append(Fault(path, first.get(name) or pins[0].line, str(error)))
            continue
        where = shelf.folder / name
        faults += _of_run(path, first.get(name, 0), pins, where, run)
        found = [(claim.line, wrong(claim, whole, str(where))) for claim in claims]
        faults += [Fault(path, line, what) for line, what in found if what]
    return faults


def _of_run(path: Path, line: int, pins: Sequence[Pin], where: Path, run: str) -> Iterator[Fault]:
    """What is wrong with the pins of one file, the first claim of which is in `line`; `run` is what they should say."""
    how = f"`forerun lab check --pin {path}`"
    if not pins:
        what = f"does not say which run of {where} it is about: {how} adds it"
        yield Fault(path, line, what, pin=True)
    elif pins[0].digest != run:
        what = f"is about run {pins[0].digest} of {where}, the file is run {run}: read the text again, then {how}"
        yield Fault(path, pins[0].line, what, pin=True)
    for again in pins[1:]:
        yield Fault(path, again.line, f"names a run of {where} again: {how} removes it", pin=True)
