"""Claims beside a page instead of in it: `study.md` is what one reads, `study.claims` says where its figures are from.

The sidecar holds the page's lines that carry claims, in their order, with `{}` in the place of each figure:

    | code | {}<!-- domains.json: workloads.code.arms.ngram.speedup.value --> | ...

and the runs that the page is about. Figures are edited in the page alone; a line that is written anew is written anew
in both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from forerun.core.errors import LoadError
from forerun.lab.claims.notation import CLAIM, COMMENT, PIN
from forerun.lab.claims.prose import blanked

_FIGURE = r"([^\s|]+?)"
_LAST = re.compile(r"[^\s|]+$")


def sidecar_of(page: Path) -> Path:
    """Where the claims of a page are, if not in it."""
    return page.with_suffix(".claims")


def joined(page: str, sidecar: str) -> str:
    """The page with its claims behind their figures, line by line as it was, and its runs at the end; LoadError for
    claims whose line is not there."""
    lines, at, runs = page.split("\n"), 0, []
    _once(lines, sidecar.splitlines())
    for line in sidecar.splitlines():
        if PIN.fullmatch(line.strip().removeprefix("<!--").removesuffix("-->")):
            runs.append(line)
        elif line.strip():
            pattern, marks = _pattern(line)
            found = ((i, match) for i in range(at, len(lines)) if (match := pattern.fullmatch(lines[i])))
            at, match = next(found, (-1, None))
            if match is None:
                raise LoadError(f"no line of the page is, in this order, {re.sub('<!--.*?-->', '', line)!r}")
            parts = [match.string[start:end] for start, end in _spans(match)]
            lines[at] = "".join(part + mark for part, mark in zip(parts, [*marks, ""], strict=True))
            at += 1
    return "\n".join([*lines, *runs])


def _once(lines: list[str], claimed: list[str]) -> None:
    """LoadError for a line that the page has more often than its sidecar: which of them is claimed, nobody knows."""
    shown = [re.sub("<!--.*?-->", "", line) for line in claimed]
    for line in (line for line in shown if re.search(r"\w", line)):
        pattern = _pattern(line)[0]
        if sum(bool(pattern.fullmatch(other)) for other in lines) > shown.count(line):
            raise LoadError(f"the page has more lines that are {line!r} than its sidecar: say more of each")


def parted(text: str) -> tuple[str, str]:
    """A page without its claims and runs, and its sidecar. The inverse of `joined`."""
    page: list[str] = []
    claims: list[str] = []
    runs: list[str] = []
    text = _in_lines(text)
    for line, marks in zip(text.split("\n"), _marks(text), strict=True):
        if not marks:
            page.append(line)
        elif all(PIN.fullmatch(line[start + 4 : end - 3]) for start, end in marks):
            runs += [line[start:end] for start, end in marks]
        else:
            page.append(_without(line, marks))
            claims.append(_template(line, marks))
    whole = "\n".join(page).rstrip("\n") + "\n"
    return whole, "".join(f"{line}\n" for line in (*claims, *runs))


def _pattern(line: str) -> tuple[re.Pattern[str], list[str]]:
    """What a line of the page must be, its figures as groups, and the comments behind them."""
    texts = re.split("<!--.*?-->", line)
    pattern = "".join(re.escape(text).replace(r"\{\}", _FIGURE) for text in texts)
    return re.compile(pattern), re.findall("<!--.*?-->", line)


def _spans(match: re.Match[str]) -> Iterator[tuple[int, int]]:
    """The parts of a line: each ends with a figure, but the last."""
    start = 0
    for group in range(1, len(match.groups()) + 1):
        yield start, match.end(group)
        start = match.end(group)
    yield start, len(match.string)


def _in_lines(text: str) -> str:
    """The text with each claim in one line."""
    for match in reversed([m for m in COMMENT.finditer(blanked(text, False)) if CLAIM.fullmatch(m["body"])]):
        text = text[: match.start()] + " ".join(match[0].split()) + text[match.end() :]
    return text


def _marks(text: str) -> list[list[tuple[int, int]]]:
    """For each line where its claims and pins are."""
    found = []
    for line in blanked(text, False).split("\n"):
        matches = COMMENT.finditer(line)
        found.append([m.span() for m in matches if CLAIM.fullmatch(m["body"]) or PIN.fullmatch(m["body"])])
    return found


def _without(line: str, marks: list[tuple[int, int]]) -> str:
    for start, end in reversed(marks):
        line = line[:start] + line[end:]
    return line


def _template(line: str, marks: list[tuple[int, int]]) -> str:
    for start, end in reversed(marks):
        figure = _LAST.search(line[:start])
        line = line[: figure.start() if figure else start] + "{}" + line[start:end] + line[end:]
    return line
