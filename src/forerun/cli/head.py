"""Look at a drafting head, or write it in a form that other programs read.

example: forerun head heads/eagle3 -m smollm2 --export speculators --out heads/for-vllm
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, cast

from forerun.cli.tell import tell

if TYPE_CHECKING:
    from torch import Tensor

    from forerun.models.heads.head import Head
    from forerun.models.heads.opening import Fit
    from forerun.train.ends import Ends
    from forerun.weights.folder import Checkpoint

FORMS = ("safeai", "speculators", "medusa", "mtp", "own")
NAMING = ("speculators", "medusa")
"""Forms that name the target."""
_HUB = {"smollm2": "HuggingFaceTB/SmolLM2-135M-Instruct"}
"""Known models by the names of the repositories that they come from."""


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("head", help="folder of the head, org/name, or a name as for -d (eagle3)")
    parser.add_argument("-m", "--model", required=True, help="its target, as for generate")
    parser.add_argument("--export", choices=FORMS, help="write it in this form")
    parser.add_argument("--out", type=Path, help="folder to write it to")
    parser.add_argument(
        "--verifier", metavar="NAME", help="how the written head names its target: owner/name on the hub, or a folder"
    )
    parser.add_argument("--overwrite", action="store_true", help="write over a head that OUT holds")


def run(args: argparse.Namespace) -> int:
    """Show it, and write it if asked; the exit status."""
    import sys

    from forerun.core.errors import SpecError
    from forerun.heads import head_folder
    from forerun.models.config import ModelConfig
    from forerun.models.heads.opening import Fit, open_head
    from forerun.weights.folder import open_checkpoint
    from forerun.weights.pull import resolve

    if (args.export is None) != (args.out is None):
        raise SpecError("--export FORM and --out FOLDER go together")
    if args.verifier and args.export not in NAMING:
        raise SpecError(f"--verifier is for --export {' and '.join(NAMING)}: other forms do not name the target")
    checkpoint = open_checkpoint(resolve(args.model))
    config = ModelConfig.from_hf(checkpoint.config)
    fit = Fit(checkpoint.path.name, config.hidden_size, config.vocab_size, config.layers, checkpoint.fingerprint)
    head, notes = open_head(head_folder(args.head, fit), fit)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    found = described(head)
    if args.export:
        from forerun.train.ends import Ends
        from forerun.train.folder import replace_head

        named = args.verifier or verifier_of(args.model, checkpoint)
        if args.export in NAMING and Path(named).suffix == ".gguf":
            print(
                f"warning: the head names {named} as its target, which other programs do not load by that name: give "
                "--verifier owner/name, the model that the file is of",
                file=sys.stderr,
            )
        ends = Ends.of(checkpoint)
        replace_head(args.out, lambda folder: export(head, args.export, folder, fit, ends, named), args.overwrite)
        said = f"{args.out}: the head in the form {args.export}"
        tell(args, f"{said}, of the target {named}" if args.export in NAMING else said, found)
        return 0
    tell(args, "\n".join(f"{key:22} {value}" for key, value in found.items()), found)
    return 0


def verifier_of(model: str, checkpoint: Checkpoint) -> str:
    """A name by which other programs load the target: its repository, or where it lies."""
    if model in _HUB:
        return _HUB[model]
    if not Path(model).expanduser().exists():
        return model  # owner/name, since it was found
    said = str(checkpoint.metadata.get("general.base_model.0.repo_url", ""))
    if checkpoint.kind == "gguf" and said.startswith("https://huggingface.co/"):
        return said.removeprefix("https://huggingface.co/").strip("/")
    return str(checkpoint.path.resolve())


def described(head: Head) -> dict[str, object]:
    """What there is to say of a head, by name."""
    from dataclasses import asdict

    said = {key: value for key, value in asdict(head.config).items() if value not in (None, (), False)}
    return {**said, "parameters": head.parameters, "own_end": head.own_end, "card": dict(head.card)}


def export(head: Head, form: str, out: Path, fit: Fit, ends: Ends, verifier: str) -> None:
    """Write `head` in that form; SpecError for a form that cannot say it."""
    from forerun.models.heads.formats import medusa, mtp, own, safeai, speculators

    def rows(words: Tensor | None) -> Tensor:
        return ends.rows(words).float()

    if form == "safeai":
        safeai.write(head, out, fit.layers, rows)
    elif form == "speculators":
        architectures = ends.source.config.get("architectures") or ("LlamaForCausalLM",)
        speculators.write(head, out, rows, ends.embedding.float(), verifier, cast("list[str]", architectures))
    elif form == "medusa":
        medusa.write(head, out, rows, verifier)
    elif form == "mtp":
        mtp.write(head, out)
    else:
        own.write(head, out)
