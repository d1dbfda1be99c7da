"""One HTML page in one file: its styles, scripts and data stand in it, and it asks the network for nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from forerun.lab.page.visible import visible

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'"


def document(title: str, body: str, styles: Sequence[str], *, data: object = None, script: str = "") -> str:
    """A whole page. `body` is HTML; `styles` and `script` are texts of ours; `data` (JSON values) is there for the
    script, in the element `data`."""
    parts = [f'<script type="application/json" id="data">{embedded(data)}</script>'] if data is not None else []
    parts += [f"<script>\n{script}</script>"] if script else []
    style = "\n".join(styles)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="forerun">
<title>{text(title)}</title>
<style>
{style}</style>
</head>
<body>
{body}
{"".join(part + chr(10) for part in parts)}</body>
</html>
"""


def asset(package: str, name: str) -> str:
    """A file that lies beside our sources."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def text(value: object, keep: str = "") -> str:
    """Anything as text of a page: escaped, and nothing in it unseen but what `keep` allows."""
    return escape(visible(str(value), keep))


def embedded(data: object) -> str:
    """JSON that no text in it can break out of: `</script>` and `<!--` are escaped, as all that is not ASCII."""
    written = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def provenance(bench: Mapping[str, Any]) -> str:
    """Where figures come from, as a card that unfolds."""
    rows = "".join(f"<dt>{text(name.replace('_', ' '))}</dt><dd>{text(said)}</dd>\n" for name, said in facts(bench))
    return f"<details class=card><summary>Where this comes from</summary>\n<dl>\n{rows}</dl></details>\n"


def facts(bench: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A bench field by field, in its order; what is empty is left out, but for a commit and whether it was changed."""
    found = []
    for name, value in bench.items():
        if name == "dirty":
            found.append(("changed since the commit", "yes" if value else "no"))
        elif name == "commit":
            found.append((name, str(value) or "none: an installed package"))
        elif value not in (None, "", {}, []):
            found.append((name, value if isinstance(value, str) else plainly(value)))
    return found


def plainly(value: object) -> str:
    """A JSON value without the signs that only machines need."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {plainly(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(plainly, value))
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value) if isinstance(value, bool | None) else str(value)
