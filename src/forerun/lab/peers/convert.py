"""The same weights for llama.cpp in other formats: dequantised from the GGUF, written as BF16 or Q8_0."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from forerun.core.errors import LoadError

KINDS = ("BF16", "Q8_0")


def converted(source: Path, kind: str, folder: Path) -> Path:
    """The file with its matrices as `kind`, made once below `folder`; metadata and vectors are copied.

    LoadError for a file that cannot be converted or written.
    """
    place = folder / hashlib.sha256(str(source.resolve()).encode()).hexdigest()[:12]
    target = place / f"{source.stem.rpartition('.')[0] or source.stem}.{kind}.gguf"
    if target.exists() and target.stat().st_mtime >= source.stat().st_mtime:
        return target
    from gguf.quants import QuantError

    part = target.with_suffix(f".{os.getpid()}.part")  # two may do this at once
    try:
        place.mkdir(parents=True, exist_ok=True)
        _write(source, part, kind)
        part.replace(target)
    except (OSError, ValueError, KeyError, NotImplementedError, QuantError) as error:
        # Disk and reading; a broken header or an unknown type in it; a kind of weights that gguf cannot quantise.
        raise LoadError(f"{source.name} cannot be written as {kind} to {place}: {error}") from error
    finally:
        part.unlink(missing_ok=True)
    return target


def _write(source: Path, path: Path, kind: str) -> None:
    """One tensor after another, so that little more than the file itself is in memory."""
    from gguf import GGUFReader, GGUFWriter
    from gguf.constants import GGMLQuantizationType, LlamaFileType
    from gguf.quants import dequantize, quantize

    reader, quantization = GGUFReader(source), GGMLQuantizationType[kind]
    writer = GGUFWriter(path, reader.fields["general.architecture"].contents())
    _copy_metadata(reader, writer, int(LlamaFileType[f"MOSTLY_{kind}"]))
    for tensor in reader.tensors:
        if len(tensor.shape) > 1:
            data = quantize(dequantize(tensor.data, tensor.tensor_type), quantization)
            writer.add_tensor(tensor.name, data, raw_dtype=quantization)
        else:
            writer.add_tensor(tensor.name, np.array(tensor.data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _copy_metadata(reader: Any, writer: Any, file_type: int) -> None:
    """Every key but those that the writer makes itself."""
    from gguf import GGUFValueType

    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind, *sub = field.types
        value: Any = file_type if field.name == "general.file_type" else field.contents()
        writer.add_key_value(field.name, value, kind, sub_type=sub[-1] if kind == GGUFValueType.ARRAY else None)
    if "general.file_type" not in reader.fields:
        writer.add_file_type(file_type)
