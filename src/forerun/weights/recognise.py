"""What people take for a model and is another thing: each by its own name, with what to do instead.

A file that is "missing" says nothing to someone who has all the files that there are.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path

_SAVE = "save it once with transformers' AutoModelForCausalLM.from_pretrained(...).save_pretrained(...) and pass that"
_PICKLED = f"pickled weights, which are not opened; convert it: {_SAVE}, or take a GGUF file"
_OTHER_WEIGHTS = (
    ("consolidated*.pth", "Meta's own format (.pth): take the model's transformers files, or a GGUF file"),
    ("*.gguf.*part*", "pieces of a .gguf file that was cut: join them with cat, in order, and pass the result"),
    ("*.gguf-split-*", "pieces of a .gguf file that was cut: join them with cat, in order, and pass the result"),
    ("*.bin", _PICKLED),
    ("*.pt", _PICKLED),
    ("*.pth", _PICKLED),
    ("*.npz", "an MLX or JAX model (.npz): take the model's transformers files, or a GGUF file"),
    ("*.h5", f"TensorFlow weights: {_SAVE}, or take a GGUF file"),
    ("*.msgpack", f"Flax weights: {_SAVE}, or take a GGUF file"),
    ("*.onnx", "an ONNX model: take the model's transformers files, or a GGUF file"),
    ("*.nemo", "a NeMo archive: take the model's transformers files, or a GGUF file"),
    ("imatrix*", "an importance matrix, statistics for quantising, and no model: pass the model's .gguf file"),
)
"""Weights that are not read, by patterns of file names; of several that fit the first counts."""
_OWN_NAMES = "weights under the names of their maker's own format: take the model's transformers files, or a GGUF file"
_QUANTISED = {"gptq": ("qweight",), "awq": ("qweight",), "mlx": ("scales", "biases"), "bitsandbytes": ("absmax",)}
_GGUF_TYPES = {
    "adapter": "a LoRA adapter: merge it into its base model (llama.cpp's llama-export-lora) and pass the result",
    "mmproj": "the projector of a model that sees images, not the model: pass the .gguf file beside it",
    "imatrix": "an importance matrix, statistics for quantising, and no model: pass the model's own .gguf file",
    "vocab": "a vocabulary without weights: pass the model's own .gguf file",
}
_EMBEDDERS = ("bert", "t5encoder", "embedding")
_PICTURES = ("flux", "sd1", "sd3", "sdxl", "aura", "cosmos", "hidream", "hyvid", "ltxv", "lumina2", "qwen_image", "wan")


def not_a_model(folder: Path) -> str | None:
    """What a folder holds that is no model of safetensors files, and what to do; None if nothing speaks against it."""
    names = sorted(path.name for path in folder.iterdir())
    if what := by_names(names, _values(folder / "adapter_config.json").get("base_model_name_or_path")):
        return what
    if any(name.endswith(".safetensors") for name in names):
        return None
    if inner := next(_models_below(folder), None):
        return f"no weights itself, but a model in {inner}: pass that folder"
    return None


def by_names(names: Collection[str], base: object = None) -> str | None:
    """The same of a folder with these file names; `base` is the model that an adapter in it is for, if known."""
    if "adapter_config.json" in names or "adapter_model.safetensors" in names:
        return adapter(base)
    weights = [name for name in names if name.endswith(".safetensors")]
    if weights and all(fnmatch(name, "consolidated*") for name in weights):
        return _OWN_NAMES
    if weights:
        return None
    for pattern, what in _OTHER_WEIGHTS:
        if found := sorted(name for name in names if fnmatch(name, pattern)):
            return f"{found[0]}: {what}"
    if "model_index.json" in names:
        return "a pipeline of diffusers, which makes images: forerun runs language models"
    return None


def adapter(base: object) -> str:
    """What a LoRA adapter for `base` is, and what to do."""
    of = f" for {base}" if isinstance(base, str) and base else ""
    return (
        f"a LoRA adapter{of}, not a whole model: merge it into its base (peft: merge_and_unload, then save_pretrained) "
        "and pass that folder"
    )


def other_names(names: Collection[str]) -> str | None:
    """What tensors of these names are, if they are a whole model's by no name that transformers uses."""
    if any(".lora_A." in name or name.endswith((".lora_a", ".lora_A")) for name in names):
        return adapter(None)
    return _OWN_NAMES if "tok_embeddings.weight" in names else None


def quantiser(config: Mapping[str, object], names: Collection[str]) -> str | None:
    """Who quantised a model, by its config or, if that does not say, by the names of its tensors."""
    endings = {name.rpartition(".")[2] for name in names}
    said = config.get("quantization_config")
    method = said.get("quant_method") if isinstance(said, Mapping) else None
    if isinstance(method, str):
        return method
    for method in ("mlx", "gptq", "bitsandbytes"):
        if set(_QUANTISED[method]) <= endings:
            return "gptq or awq" if method == "gptq" else method
    return None


def gguf_kind(metadata: Mapping[str, object], names: Collection[str]) -> str | None:
    """What a GGUF file holds that is no language model, and what to do; None if it may be one."""
    kind, arch = metadata.get("general.type"), metadata.get("general.architecture")
    if any(name.endswith(".lora_a") for name in names):
        return _GGUF_TYPES["adapter"]
    if isinstance(kind, str) and kind in _GGUF_TYPES:
        return _GGUF_TYPES[kind]
    if arch == "clip":
        return _GGUF_TYPES["mmproj"]
    if arch == "controlvector":
        return "a control vector, and no model: forerun does not apply those"
    if isinstance(arch, str) and any(part in arch for part in _EMBEDDERS):
        return f"an embedding model ({arch}), which writes no text: pass a language model"
    if arch in _PICTURES:
        return f"a model that makes images ({arch}): forerun runs language models"
    if not names:
        return _GGUF_TYPES["vocab"]
    return None


def placeholder(head: bytes) -> str | None:
    """What stands in the place of a file that begins so, if it was never really downloaded."""
    if head.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer, not the file itself: git lfs pull"
    if head.lstrip()[:9].lower() in (b"<!doctype", b"<html") or head.lstrip()[:5].lower() == b"<html":
        return "a web page, not the file itself: download it by its own link"
    return None


def _models_below(folder: Path) -> Iterator[str]:
    """Folders in it that look like models: of a copy of the hub's cache, or of a collection."""
    for pattern in ("*/config.json", "snapshots/*/config.json", "*/*.gguf", "snapshots/*/*.gguf"):
        for path in sorted(folder.glob(pattern)):
            yield str(path.parent.relative_to(folder))


def _values(path: Path) -> Mapping[str, object]:
    """A JSON object; empty if there is none."""
    try:
        got = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return got if isinstance(got, dict) else {}
