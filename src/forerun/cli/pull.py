"""Fetch a model once, and say where it lies.

examples:
  forerun pull smollm2
  forerun pull Qwen/Qwen3-0.6B"""

from __future__ import annotations

import argparse

from forerun.cli.tell import tell


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "model", help="smollm2, or org/name of the Hugging Face hub; of many .gguf files org/name:Q4_K_M"
    )


def run(args: argparse.Namespace) -> int:
    """Print the path."""
    from forerun.weights.pull import resolve

    path = str(resolve(args.model))
    tell(args, path, {"path": path})
    return 0
