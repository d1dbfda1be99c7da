"""Results files as one page: tables, charts, and the bench of every figure.

The name of the page says what it is: .html is one file that works without network, .md has its charts as SVG files
beside it. Files of different machines, models or versions may stand on one page; it says in what they differ.

examples:
  forerun lab report measured/domains.json -o report.html
  forerun lab report measured/*.json -o report.md"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from forerun.cli.tell import tell


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("files", nargs="+", type=Path, metavar="RESULTS.json", help="files that lab commands wrote")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="PAGE.html|PAGE.md", help="the page")


def run(args: argparse.Namespace) -> int:
    """Read, draw and write."""
    from forerun.lab.machine import write_whole
    from forerun.lab.page import markdown, web
    from forerun.lab.page.out import check_page
    from forerun.lab.page.report import make

    check_page(args.out, (".html", ".htm", ".md"))
    report = make(args.files)
    pictures: dict[str, str] = {}
    if args.out.suffix.lower() == ".md":
        text, pictures = markdown.pages(report, args.out.stem)
    else:
        text = web.page(report)
    for name, picture in pictures.items():  # the text last: whatever it shows is there
        write_whole(args.out.with_name(name), picture)
    write_whole(args.out, text)
    for section in report.sections:
        for warning in section.warnings:
            print(f"warning: {section.result.path.name}: {warning}", file=sys.stderr)
    for warning in report.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    said = "\n".join(f"{section.title}  ({section.result.path})" for section in report.sections)
    written = [str(args.out), *(str(args.out.with_name(name)) for name in pictures)]
    tell(args, said, {"experiment": "report", "files": [str(path) for path in args.files], "written": written})
    print(f"written to {args.out}", file=sys.stderr)
    return 0
