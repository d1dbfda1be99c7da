"""`forerun`: text on stdout, everything else on stderr, one line and exit 1 for what was to be expected.

Each command is a file with `add` (its options) and `run`; heavy imports happen inside `run`, so that help is instant.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import NoReturn

try:
    from forerun.cli import chat, demo, doctor, drafters, generate, head, lab, pull, train
    from forerun.cli.tell import add_common, add_debug
except KeyboardInterrupt:  # before there is anything to interrupt
    print("interrupted", file=sys.stderr)
    sys.exit(130)

COMMANDS = {
    "generate": generate,
    "chat": chat,
    "demo": demo,
    "pull": pull,
    "drafters": drafters,
    "doctor": doctor,
    "train": train,
    "head": head,
    "lab": lab,
}
OF_SEVERAL = ("chat", "lab")
"""Commands that say more than one thing, or have commands of their own, so that --json is none of their options."""
_LONGEST = 400  # characters of an error that are shown


class Parser(argparse.ArgumentParser):
    """argparse, with the nearest name suggested for one that does not exist, and faults of two lines."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where the options stand, and exit 2."""
        said = "".join(char if char.isprintable() else repr(char)[1:-1] for char in message)
        said = said if len(said) <= _LONGEST else f"{said[:_LONGEST]} …"
        self.exit(2, f"Error: {said}\n{self.prog} --help lists what it takes\n")

    def refuse(self, wrong: Sequence[str]) -> NoReturn:
        """`error` for arguments that nobody takes."""
        known = [option for action in self._actions for option in action.option_strings]
        near = [f"{word} (did you mean {found}?)" if (found := nearest(word, known)) else word for word in wrong]
        self.error(f"unrecognized arguments: {' '.join(near)}")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Refuse what is none of an argument's choices; argparse would name all of them, near or not."""
        if action.choices is None or value in action.choices:
            return
        choices = list(map(str, action.choices))
        found = nearest(str(value), choices)
        hint = f"did you mean {found}?" if found else f"it takes {', '.join(choices)}"
        raise argparse.ArgumentError(action, f"there is no {value!r}: {hint}")


def nearest(wrong: str, known: Sequence[str]) -> str | None:
    """The known name that a wrong one is most like, if it is like any; no name are its dashes, and `=` and a value."""
    names = {name.lstrip("-"): name for name in known}
    found = get_close_matches(wrong.partition("=")[0].lstrip("-"), names, n=1)
    return names[found[0]] if found else None


def parser() -> Parser:
    """The whole command line."""
    top = Parser(
        prog="forerun",
        description="Lossless speculative decoding: the same text, sooner.",
        epilog='example: forerun generate -m smollm2 -d ngram "Why is the sky blue?"',
    )
    top.add_argument("--version", action="store_true", help="print the version and exit")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name, module in COMMANDS.items():
        summary, _, example = (module.__doc__ or "").partition("\n\n")
        command = commands.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=example,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        (add_debug if name in OF_SEVERAL else add_common)(command)
        module.add(command)
    return top


def _name_drafters(args: argparse.Namespace) -> None:
    """Folders in the place of drafters' names become the names of what they hold, once for all commands."""
    given = getattr(args, "drafter", None)
    if given:
        from forerun.assemble import named

        args.drafter = named(given) if isinstance(given, str) else [named(one) for one in given]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    try:
        return _run(argv)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _run(argv: Sequence[str] | None) -> int:
    top, given = parser(), list(sys.argv[1:] if argv is None else argv)
    if given and given[0].startswith("-") and given[0] not in ("-h", "--help", "--version"):
        top.error(f"{given[0]} stands before the command; options stand behind it: forerun COMMAND {given[0]} …")
    args, rest = top.parse_known_args(given)
    if args.version:
        from forerun import __version__

        print(f"forerun {__version__}")
        return 0
    if args.command is None:
        top.print_help(sys.stderr)
        return 2
    if rest:
        _chosen(top, args).refuse(rest)
    return _guarded(args)


def _chosen(parser: Parser, args: argparse.Namespace) -> Parser:
    """The parser of the command that was given, and of its own command if it has some."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return _chosen(action.choices[getattr(args, action.dest)], args)
    return parser


def _guarded(args: argparse.Namespace) -> int:
    from forerun.core.errors import ForerunError

    if sys.stdout is None:  # closed by whoever started us
        print("Error: there is no standard output to write to", file=sys.stderr)
        return 1
    sys.stdin = sys.stdin or io.StringIO()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # an answer may hold what the terminal's encoding does not
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            _name_drafters(args)
            status = int(COMMANDS[args.command].run(args) or 0)
        sys.stdout.flush()
        return status
    except ForerunError as error:
        if getattr(args, "debug", False):
            raise
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        _drop_output()
        return 1
    except OSError as error:
        if getattr(args, "debug", False):
            raise
        _drop_output()
        print(f"Error: {error.strerror or error}{f': {error.filename}' if error.filename else ''}", file=sys.stderr)
        return 1


def _warn(message: Warning | str, category: type[Warning], *where: object, **more: object) -> None:
    """A warning in one line, without the place in our code that gave it."""
    from forerun.core.notes import Note

    print(f"{'note' if issubclass(category, Note) else 'warning'}: {message}", file=sys.stderr)


def _drop_output() -> None:
    """What could not be written would be tried again, with a traceback, when Python ends."""
    with suppress(OSError, io.UnsupportedOperation):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
