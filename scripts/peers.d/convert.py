"""The same weights for llama.cpp in other formats: dequantised from the GGUF, written as BF16 or Q8_0."""

from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from gguf.constants import GGMLQuantizationType, LlamaFileType
from gguf.quants import dequantize, quantize

KINDS = {
    "BF16": (GGMLQuantizationType.BF16, LlamaFileType.MOSTLY_BF16),
    "Q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
}


def converted(source: Path, kind: str, folder: Path) -> Path:
    """The file with its matrices as `kind`, made once; metadata and vectors are copied."""
    target = folder / f"{source.stem.rpartition('.')[0] or source.stem}.{kind}.gguf"
    if target.exists() and target.stat().st_mtime >= source.stat().st_mtime:
        return target
    folder.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    write(GGUFReader(source), part, kind)
    part.replace(target)
    return target


def write(reader: GGUFReader, path: Path, kind: str) -> None:
    """One tensor after another, so that little more than the file itself is in memory."""
    quantization, file_type = KINDS[kind]
    writer = GGUFWriter(path, reader.fields["general.architecture"].contents())
    copy_metadata(reader, writer, int(file_type))
    for tensor in reader.tensors:
        data = tensor.data
        if len(tensor.shape) > 1:
            data = quantize(dequantize(data, tensor.tensor_type), quantization)
            writer.add_tensor(tensor.name, data, raw_dtype=quantization)
        else:
            writer.add_tensor(tensor.name, np.array(data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def copy_metadata(reader: GGUFReader, writer: GGUFWriter, file_type: int) -> None:
    """Every key but those that the writer makes itself."""
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind, *sub = field.types
        value: Any = file_type if field.name == "general.file_type" else field.contents()
        writer.add_key_value(field.name, value, kind, sub_type=sub[-1] if kind == GGUFValueType.ARRAY else None)
    if "general.file_type" not in reader.fields:
        writer.add_file_type(file_type)
