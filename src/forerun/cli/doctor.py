"""Say what machine this is, which versions are installed, and what would be used and why.

examples:
  forerun doctor --json
  forerun doctor -m model.gguf --weights auto"""

from __future__ import annotations

import argparse
import platform

from forerun.cli.tell import tell


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("-m", "--model", help="say too what the native runtime makes of this model's weights")
    parser.add_argument("--weights", default="auto", help="auto, f32, bf16, int8, q4 or nf4, for --model (auto)")


def run(args: argparse.Namespace) -> int:
    """Print the findings."""
    found = findings()
    if args.model:
        found |= weights_of(args.model, args.weights)
    tell(args, "\n".join(f"{key:22} {value}" for key, value in found.items()), found)
    return 0


def findings() -> dict[str, object]:
    """What was found, by name."""
    import torch

    from forerun import __version__
    from forerun.lab.machine import processor
    from forerun.targets.choice import Wish, choose
    from forerun.weights.pull import fetched, home

    cuda = torch.cuda.is_available()
    model = fetched("smollm2")
    choice = choose(Wish())
    return {
        "forerun": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": _version("transformers", 'not installed; the hf runtime needs pip install "forerun[hf]"'),
        "system": platform.platform(),
        "processor": processor(),
        "huge pages": _huge_pages(),
        "runtime": f"{choice.runtime}: {choice.why}; --runtime native, torch or hf takes another",
        **_native(),
        "torch threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name(0) if cuda else "none found",
        "device": "cpu unless --device says otherwise" + ("; --device cuda would work" if cuda else ""),
        "weights": "native: the file's own format, or int8 where that has no kernel (K-quants, Q5); -m MODEL tells",
        "dtype": "torch and hf: float32, what the greedy text is compared in; --dtype bfloat16 halves memory",
        "cache": str(home()),
        "smollm2": str(model) if model else "not fetched; forerun pull smollm2",
    }


def weights_of(model: str, weights: str) -> dict[str, object]:
    """The formats that a model's matrices get, and why; packs them if that was not done before."""
    from forerun.models.opening import open_model
    from forerun.native import ext
    from forerun.weights.pull import resolve

    if ext.why_not():
        return {f"weights of {model}": "the torch runtime unpacks them to its dtype"}
    packed = open_model(resolve(model), weights)
    formats = ", ".join(f"{count} {name}" for name, count in packed.formats.items())
    notes = {f"note {i}": note for i, note in enumerate((*packed.notes, *packed.reasons), 1)}
    return {f"weights of {model}": f"{formats} matrices, {packed.arena.nbytes / 2**20:.0f} MiB", **notes}


def _native() -> dict[str, object]:
    """What the compiled extension would use: instruction set, threads, and why no better one."""
    from forerun.core.errors import SpecError
    from forerun.lab.machine import cores
    from forerun.native import ext

    module = ext.extension()
    if module is None:
        return {"instruction set": f"none: {ext.why_not()}", "cores usable": cores()}
    sets: dict[str, str] = module.isas()
    try:
        used, why = ext.choose_isa()
        found: dict[str, object] = {"instruction set": f"{used}: {why}"}
    except SpecError as error:
        used, found = "", {"instruction set": f"none: {error}"}
    for name, reason in sets.items():
        found[f"isa {name}"] = reason or ("used" if name == used else "runs here")
    quota = module.cpu_quota()
    limit = "" if quota == float("inf") else f"; control groups allow {quota:g}"
    found["cores usable"] = module.cores()
    found["native threads"] = f"{module.threads()} on {module.cores()} usable cores{limit}"
    return found


def _huge_pages() -> str:
    """Whether large memory can lie in pages of 2 MB, which spare the processor most of its table look-ups."""
    means = {
        "always": "used for weights and memory of tokens",
        "madvise": "used for weights and memory of tokens, which ask for them",
        "never": "switched off, forwards read slower; /sys/kernel/mm/transparent_hugepage/enabled takes madvise",
    }
    try:
        with open("/sys/kernel/mm/transparent_hugepage/enabled", encoding="ascii") as file:
            setting = file.read().partition("[")[2].partition("]")[0]
    except OSError:
        return "not known to this system"
    return f"{setting}: {means.get(setting, 'unknown setting')}"


def _version(package: str, otherwise: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return otherwise
