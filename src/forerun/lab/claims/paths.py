"""Paths into a results file, as people write them.

workloads.code.arms."ngram:depth=8".speedup.value     keys; those with dots, spaces, quotes or brackets quoted
points[3].ms   points[rows=8,batch=1].ms              an item of a list by place, or the one that has these values
/bench.processor                                      from the top of the file; others start at its `figures`
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forerun.core.errors import SpecError, unknown
from forerun.lab.claims.written import plain

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_BARE = r'[^\s."\[\]]+'
_CONDITION = rf'(?:{_QUOTED}|[^\s"=,\[\]]+)=(?:{_QUOTED}|[^\s",\[\]]+)'
_STEP = re.compile(
    rf"(?P<dot>\.?)(?P<key>{_QUOTED}|{_BARE})|\[(?P<index>[0-9]{{1,9}})\]|\[(?P<where>{_CONDITION}(?:,{_CONDITION})*)\]"
)


@dataclass(frozen=True, slots=True)
class Where:
    """The one item of a list whose fields have these values, as text."""

    fields: tuple[tuple[str, str], ...]


Step = str | int | Where


def steps_of(path: str) -> tuple[Step, ...]:
    """A path's steps from the top of the file; SpecError for what is no path."""
    rest = path.removeprefix("/")
    steps: list[Step] = [] if path.startswith("/") else ["figures"]
    at = 0
    while at < len(rest):
        match = _STEP.match(rest, at)
        if not match or (match["key"] and bool(match["dot"]) == (at == 0)) or (at == 0 and path.startswith("/[")):
            raise SpecError(
                f"{path!r} is no path (at {rest[at:]!r}): keys are separated by dots, quoted if they hold dots or "
                "spaces; items of lists are points[3] or points[rows=8]"
            )
        steps.append(_step(match))
        at = match.end()
    if len(steps) < (1 if path.startswith("/") else 2):
        raise SpecError("a claim needs a path behind the file's name, as `domains.json: workloads.code.tau`")
    return tuple(steps)


def _step(match: re.Match[str]) -> Step:
    if match["index"]:
        return int(match["index"])
    if match["where"]:
        fields = re.findall(rf"({_QUOTED}|[^=,]+)=({_QUOTED}|[^,]+)", match["where"])
        return Where(tuple((_bare(name), _bare(value)) for name, value in fields))
    return _bare(match["key"])


def _bare(text: str) -> str:
    try:
        return str(json.loads(text)) if text.startswith('"') else text
    except ValueError:
        raise SpecError(f"the quoted key {text} has an escape that JSON does not know") from None


def path_of(*steps: Step, top: bool = False) -> str:
    """The path of these steps, from `figures` or the top of the file, in a form that tables and HTML leave whole."""
    text = "/" if top else ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        elif isinstance(step, Where):
            text += f"[{','.join(f'{_plain(name)}={_plain(value)}' for name, value in step.fields)}]"
        else:
            text += ("." if text not in ("", "/") else "") + _plain(step)
    return text


def _plain(key: str) -> str:
    if re.fullmatch(r"[\w:+%*/-]+", key) and "--" not in key and not key.startswith("/"):
        return key
    quoted = json.dumps(key, ensure_ascii=False)
    for char in "|<>-`":  # would end a table's cell or a comment, or begin a tag or code
        quoted = quoted.replace(char, f"\\u{ord(char):04x}")
    return quoted


def follow(value: Any, steps: tuple[Step, ...]) -> Any:
    """What lies at the end of a path; SpecError that names the nearest key where it leads nowhere."""
    for i, step in enumerate(steps):
        value = _into(value, step, path_of(*steps[:i], top=True))
    return value


def _into(value: Any, step: Step, where: str) -> Any:
    if isinstance(step, str):
        if not isinstance(value, Mapping):
            raise SpecError(f"there is no key {step!r} at {where}: {_kind(value)} stands there")
        if step not in value:
            raise unknown(f"key at {where}", step, map(str, value))
        return value[step]
    if not isinstance(value, list | tuple):
        raise SpecError(f"there is no list at {where}: {_kind(value)} stands there")
    if isinstance(step, int):
        if step >= len(value):
            raise SpecError(f"there is no item {step} at {where}: the list has {len(value)}, counted from 0")
        return value[step]
    found = [item for item in value if isinstance(item, Mapping) and all(_has(item, *field) for field in step.fields)]
    if len(found) != 1:
        asked = path_of(step)
        values = {name: sorted({str(i[name]) for i in value if isinstance(i, Mapping) and name in i})[:12]
                  for name, _ in step.fields}  # fmt: skip
        there = "; ".join(f"{name}: {', '.join(known) or 'not there'}" for name, known in values.items())
        raise SpecError(f"{len(found)} items at {where} are {asked}, one is meant ({there})")
    return found[0]


def _has(item: Mapping[str, Any], name: str, text: str) -> bool:
    if name not in item:
        return False
    value = item[name]
    if isinstance(value, int | float) and not isinstance(value, bool):
        given = plain(text)
        return given is not None and given == plain(str(value))
    return text == (value if isinstance(value, str) else json.dumps(value))


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a table of {', '.join(map(str, list(value)[:6]))}"
    return f"a list of {len(value)}" if isinstance(value, list | tuple) else f"the value {json.dumps(value)}"
