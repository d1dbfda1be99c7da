"""Opens what a person points at (a Hugging Face folder, a .gguf file) as one kind of thing: a Checkpoint.

Also tells apart what is not a whole model: EAGLE and Medusa heads are recognised by their tensors and
refused by name, since loading one as a model is a well-known way to get random weights.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from forerun.arch import FAMILIES
from forerun.core.errors import LoadError
from forerun.weights import gguf_config, recognise
from forerun.weights.gguf import GGUFFile, open_gguf
from forerun.weights.names import GGUFSource
from forerun.weights.parts import gguf_choices, lone_gguf
from forerun.weights.safetensors import SafetensorsSource, open_file, open_safetensors, read_json
from forerun.weights.settle import EMBEDDING, HEAD, settle
from forerun.weights.source import Renamed, StoredSource, TensorSource, matrices

_MEDUSA = re.compile(r"(medusa_head\.)?\d+\.\d+\.linear\.weight")
_SAMPLE = 4096  # bytes of weights hashed at the start, middle and end of each file


@dataclass(frozen=True)
class Checkpoint:
    """A model on disk, opened and checked but not yet read.

    `config` has Hugging Face keys for both kinds; `metadata` is the GGUF file's own (empty for a folder),
    which holds its tokenizer. `fingerprint` is 16 hex digits of a hash over headers, sizes, config and
    samples of the weights: cheap, the same on every machine, different for another fine-tune. `notes` say where the
    config is not the file's, since tensors contradict it, and what else is odd. `stored` tells of the matrices in the
    file, by type: how many values, how many bytes.
    """

    path: Path
    config: Mapping[str, object]
    tensors: TensorSource
    fingerprint: str
    eos_ids: frozenset[int]
    kind: Literal["folder", "gguf"]
    metadata: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    notes: tuple[str, ...] = ()
    stored: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    corrected: Mapping[str, object] = field(default_factory=dict)
    """What of a folder's config.json is not as it says."""


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a model folder, a .gguf file, or a folder with exactly one .gguf model; LoadError says what is wrong.

    Of a .gguf model that is split the first file stands for all.
    """
    if path.is_dir():
        return _open_folder(path)
    if not path.exists():
        raise LoadError(f"{path} does not exist; pass a Hugging Face folder or a .gguf file")
    if path.suffix == ".safetensors":
        _refuse_heads(path, open_file(path).names())
        raise LoadError(f"{path} is a single weight file; pass its folder, with config.json and tokenizer.json")
    return _open_gguf(path)


def head_kind(names: Iterable[str]) -> str | None:
    """`"eagle"` or `"medusa"` if these tensor names are those of a drafting head, else None."""
    held = set(names)
    if "model.embed_tokens.weight" in held and "model.norm.weight" in held:
        return None
    if held & {"fc.weight", "model.fc.weight", "d2t"}:
        return "eagle"
    return "medusa" if any(_MEDUSA.fullmatch(n) for n in held) else None


def _refuse_heads(path: Path, names: Iterable[str]) -> None:
    kind = head_kind(names)
    if kind:
        raise LoadError(
            f"{path} holds {'an EAGLE' if kind == 'eagle' else 'a Medusa'} head, not a whole model: "
            f"give it to the {kind} drafter, and as the model the target it was trained for"
        )


def _open_folder(folder: Path) -> Checkpoint:
    if (lone := lone_gguf(folder)) != folder:
        return _open_gguf(lone)
    choices = gguf_choices(path.name for path in folder.glob("*.gguf"))
    if len(choices) > 1 and not any(folder.glob("*.safetensors")):
        shown = ", ".join(choices[:5])
        raise LoadError(f"{folder} holds {len(choices)} .gguf files ({shown}); pass the path of one of them")
    if what := recognise.not_a_model(folder):
        raise LoadError(f"{folder} holds {what}")
    source = open_safetensors(folder)
    _refuse_heads(folder, source.names())
    if what := recognise.other_names(source.names()):
        raise LoadError(f"{folder} holds {what}")
    config = read_json(folder / "config.json")
    if method := recognise.quantiser(config, source.names()):
        config["quantization_config"] = {"quant_method": method}
    generation = folder / "generation_config.json"
    ends = _ids(config.get("eos_token_id"))
    if generation.is_file():
        ends |= _ids(read_json(generation).get("eos_token_id"))
    mark = _folder_mark(folder, source)
    tensors = _usual_names(source, config)
    settled, notes = settle(config, tensors)
    corrected = {key: value for key, value in settled.items() if config.get(key) != value or key not in config}
    return Checkpoint(
        folder, MappingProxyType(settled), tensors, mark, ends, "folder", notes=notes, stored=matrices(tensors),
        corrected=corrected,
    )  # fmt: skip


def _usual_names(source: StoredSource, config: Mapping[str, object]) -> StoredSource:
    """The source under the names of a whole model: a bare decoder's lack `model.`, of a tied pair the head alone may be
    there."""
    theirs = {name: name for name in source.names()}
    if "layers.0.input_layernorm.weight" in theirs and not any(name.startswith("model.") for name in theirs):
        theirs = {name if name.startswith("lm_head.") else f"model.{name}": name for name in theirs}
    if EMBEDDING not in theirs and HEAD in theirs and config.get("tie_word_embeddings") is True:
        theirs[EMBEDDING] = theirs.pop(HEAD)
    return source if all(new == old for new, old in theirs.items()) else Renamed(source, theirs)


def _open_gguf(path: Path) -> Checkpoint:
    file = open_gguf(path)
    if what := recognise.gguf_kind(file.metadata, file.tensors):
        raise LoadError(f"{path} is {what}")
    said = gguf_config.to_hf(file)
    arch = FAMILIES[str(said["model_type"])]
    config, notes = settle(said, GGUFSource(file, replace(arch, interleaved=False)))
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    if not isinstance(heads, int) or not isinstance(kv_heads, int) or heads < 1 or kv_heads < 1:
        raise LoadError(f"{path}: head counts are {heads!r} and {kv_heads!r} (allowed: positive integers)")
    source = GGUFSource(file, arch, heads, kv_heads)
    ends = gguf_config.eos_ids(file.metadata)
    meta = MappingProxyType(dict(file.metadata))
    mark, notes = _gguf_mark(file), (*file.notes, *notes)
    return Checkpoint(path, MappingProxyType(config), source, mark, ends, "gguf", meta, notes, matrices(source))


def _ids(value: object) -> frozenset[int]:
    listed = value if isinstance(value, list) else [value]
    return frozenset(i for i in listed if isinstance(i, int) and not isinstance(i, bool) and i >= 0)


def _gguf_mark(file: GGUFFile) -> str:
    digest = hashlib.sha256()
    for sample in file.samples(_SAMPLE):
        digest.update(sample)
    return digest.hexdigest()[:16]


def _folder_mark(folder: Path, source: SafetensorsSource) -> str:
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in source.files:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")  # checked by safetensors when it was opened
            digest.update(f"{path.name} {size} {length}".encode() + file.read(length))
            for at in (8 + length, (8 + length + size) // 2, max(8 + length, size - _SAMPLE)):
                file.seek(at)
                digest.update(file.read(_SAMPLE))
    return digest.hexdigest()[:16]
