"""What every bench script shares: an interpreter with forerun, and a results file that tells its own story."""

import argparse
import json
import os
import sys
from pathlib import Path

import torch

import forerun
from forerun.lab import machine
from forerun.native import ext

ROOT = Path(__file__).parent.parent


def provenance() -> dict[str, object]:
    """Machine, versions, commit, command and load: what a figure is worth nothing without."""
    script = os.path.relpath(sys.argv[0], ROOT)
    threads = torch.get_num_threads() if ext.why_not() else ext.threads()
    return {**machine.provenance(["python", script, *sys.argv[1:]]), "threads": threads}


def add_runtime(parser: argparse.ArgumentParser) -> None:
    """Options that choose the runtime and its weights."""
    parser.add_argument("--runtime", default="auto", help="native, torch or hf (auto)")
    parser.add_argument(
        "--weights", default="auto", help="of the native runtime: auto, f32, bf16, int8, q4, nf4 (auto)"
    )
    parser.add_argument("--dtype", default="auto", help="of the other runtimes: float32, bfloat16, float16 (float32)")


def runtime_options(args: argparse.Namespace) -> dict[str, str]:
    """Those options as `forerun.load` takes them."""
    return {"runtime": args.runtime, "weights": args.weights, "dtype": args.dtype}


def label(engine: forerun.Engine, args: argparse.Namespace) -> str:
    """What ran, in two words: `native q4_1`, `torch float32`."""
    spec = engine.parts.target.spec
    runner = getattr(engine.parts.target, "runner", None)
    formats = getattr(getattr(runner, "packed", None), "formats", None)
    if formats is None:
        return f"{'hf' if args.runtime == 'hf' else 'torch'} {spec.dtype}"
    most = max(formats, key=lambda name: formats[name])
    return f"native {most}"


def write(name: str, figures: dict[str, object]) -> None:
    """Write results/NAME.json whole, and print its figures as the last line."""
    text = json.dumps({"bench": provenance(), "figures": figures}, indent=1) + "\n"
    machine.write_whole(ROOT / "results" / f"{name}.json", text)
    print(json.dumps(figures))
