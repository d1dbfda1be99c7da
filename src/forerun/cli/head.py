"""Look at a drafting head, or write it in a form that other programs read.

example: forerun head heads/eagle3 -m smollm2 --export speculators --out heads/for-vllm
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from forerun.cli.tell import tell

if TYPE_CHECKING:
    from torch import Tensor

    from forerun.models.heads.head import Head
    from forerun.models.heads.opening import Fit
    from forerun.train.ends import Ends

FORMS = ("safeai", "speculators", "medusa", "mtp", "own")


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("head", help="folder of the head, or org/name")
    parser.add_argument("-m", "--model", required=True, help="its target, as for generate")
    parser.add_argument("--export", choices=FORMS, help="write it in this form")
    parser.add_argument("--out", type=Path, help="folder to write it to")


def run(args: argparse.Namespace) -> int:
    """Show it, and write it if asked; the exit status."""
    import sys

    from forerun.core.errors import SpecError
    from forerun.heads import folder_of
    from forerun.models.config import ModelConfig
    from forerun.models.heads.opening import Fit, open_head
    from forerun.weights.folder import open_checkpoint
    from forerun.weights.pull import resolve

    if (args.export is None) != (args.out is None):
        raise SpecError("--export FORM and --out FOLDER go together")
    checkpoint = open_checkpoint(resolve(args.model))
    config = ModelConfig.from_hf(checkpoint.config)
    fit = Fit(checkpoint.path.name, config.hidden_size, config.vocab_size, config.layers, checkpoint.fingerprint)
    head, notes = open_head(folder_of("head", args.head, fit), fit)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    if args.export:
        from forerun.train.ends import Ends

        export(head, args.export, args.out, fit, Ends.of(checkpoint))
    found = described(head)
    tell(args, "\n".join(f"{key:22} {value}" for key, value in found.items()), found)
    return 0


def described(head: Head) -> dict[str, object]:
    """What there is to say of a head, by name."""
    from dataclasses import asdict

    said = {key: value for key, value in asdict(head.config).items() if value not in (None, (), False)}
    return {**said, "parameters": head.parameters, "own_end": head.own_end, "card": dict(head.card)}


def export(head: Head, form: str, out: Path, fit: Fit, ends: Ends) -> None:
    """Write `head` in that form; SpecError for a form that cannot say it."""
    from forerun.models.heads.formats import medusa, mtp, own, safeai, speculators

    def rows(words: Tensor | None) -> Tensor:
        return ends.rows(words).float()

    if form == "safeai":
        safeai.write(head, out, fit.layers, rows)
    elif form == "speculators":
        speculators.write(head, out, rows, ends.embedding.float(), fit.name)
    elif form == "medusa":
        medusa.write(head, out, rows, fit.name)
    elif form == "mtp":
        mtp.write(head, out)
    else:
        own.write(head, out)
