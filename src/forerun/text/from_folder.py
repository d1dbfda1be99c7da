"""A tokenizer out of a Hugging Face folder: tokenizer.json, and what three more files say about it.

How tokens turn into bytes is read off the decoder in tokenizer.json; a decoder of another kind is
refused, since its bytes would be guessed. Templates come from chat_template.jinja, chat_template.json
or tokenizer_config.json, in that order.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers

from forerun.core.errors import LoadError
from forerun.text.pieces import from_byte_level, from_sentencepiece, literal
from forerun.text.tokenizer import Settings, Tokenizer, load_backend, shield

_ROLES = ("bos", "eos", "unk", "pad")
_MOST_IDS = 1 << 22
_LARGEST = 256 << 20  # bytes of one file


def from_folder(folder: Path) -> Tokenizer:
    """The tokenizer of a model folder; LoadError says which file is missing or wrong."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        slow = next((n for n in ("tokenizer.model", "vocab.json", "tiktoken.model") if (folder / n).is_file()), None)
        if slow:
            raise LoadError(
                f"{folder} has {slow} but no tokenizer.json: save it once with transformers' "
                "AutoTokenizer.from_pretrained(...).save_pretrained(...), or use the model's GGUF file"
            )
        raise LoadError(f"{path} is missing; download the model's tokenizer files")
    text = _read(path)
    backend = load_backend(text, str(path))
    shape = _object(json.loads(text), path)
    config = _json(folder / "tokenizer_config.json")
    named = _json(folder / "special_tokens_map.json")
    names = {r: n for r in _ROLES if (n := _name(f"{r}_token", config, folder) or _name(f"{r}_token", named, folder))}
    ids = {role: i for role, name in names.items() if (i := backend.token_to_id(name)) is not None}
    byte_level, strip = _decoder(shape.get("decoder"), path)
    pieces, special = _vocabulary(backend, byte_level, path)
    settings = Settings(
        bos_id=ids.get("bos"),
        eos_id=ids.get("eos"),
        unk_id=ids.get("unk"),
        pad_id=ids.get("pad"),
        add_bos=_adds_bos(backend, config, ids.get("bos")),
        strip_space=strip,
        chat_template=_template(folder, config),
        specials={f"{role}_token": names[role] for role in ids},
    )
    return Tokenizer(backend, pieces, special, settings)


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > _LARGEST:
            raise LoadError(f"{path} has {path.stat().st_size} bytes (allowed: {_LARGEST}): not a tokenizer file")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"cannot read {path} ({error}); download it again") from error


def _object(value: object, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise LoadError(f"{path} holds a JSON {type(value).__name__} (allowed: an object); download it again")
    return value


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return _object(json.loads(_read(path)), path)
    except (ValueError, RecursionError) as error:
        raise LoadError(f"{path} is not readable JSON ({error}); download it again") from error


def _name(role: str, values: Mapping[str, object], folder: Path) -> str | None:
    """The token that plays a role, if one does."""
    value = values.get(role)
    if isinstance(value, Mapping):  # a saved AddedToken
        value = value.get("content")
    if not isinstance(value, str) or not value:
        return None
    if any(0xD800 <= ord(char) < 0xE000 for char in value):
        raise LoadError(f"{role} of {folder} is {value!r}, half a character (allowed: text); download it again")
    return value


def _vocabulary(backend: tokenizers.Tokenizer, byte_level: bool, path: Path) -> tuple[list[bytes], dict[int, str]]:
    vocabulary = backend.get_vocab(with_added_tokens=True)
    added = backend.get_added_tokens_decoder()
    size = max([*vocabulary.values(), *added], default=-1) + 1
    if not 0 < size <= _MOST_IDS:
        raise LoadError(f"{path} has ids up to {size - 1} (allowed: 0 to {_MOST_IDS - 1}); download it again")
    convert = from_byte_level if byte_level else from_sentencepiece
    pieces = [b""] * size
    for token, i in vocabulary.items():
        if i not in added:
            pieces[i] = convert(token)
    for i, entry in added.items():
        pieces[i] = literal(entry.content) if byte_level else from_sentencepiece(entry.content)
    return pieces, {i: entry.content for i, entry in added.items() if entry.special}


def _decoder(decoder: object, path: Path) -> tuple[bool, bool]:
    """Whether the vocabulary is byte-level, and whether decoding drops a leading space."""
    outer = decoder if isinstance(decoder, dict) else {}
    listed = outer.get("decoders") if outer.get("type") == "Sequence" else [outer]
    parts = [p for p in listed if isinstance(p, dict)] if isinstance(listed, list) else []
    kinds = {str(p.get("type")) for p in parts}
    if kinds == {"ByteLevel"}:
        return True, False
    if "ByteFallback" in kinds and kinds <= {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}:
        stripped = any(p.get("type") == "Strip" and p.get("start") == 1 and p.get("content") == " " for p in parts)
        return False, stripped or any(_metaspace_strips(p) for p in parts)
    if kinds == {"Metaspace"}:
        return False, _metaspace_strips(parts[0])
    raise LoadError(
        f"{path} has decoder {sorted(kinds)} (allowed: ByteLevel; Metaspace; ByteFallback with Replace, Fuse, "
        "Strip): the bytes of its tokens would be guessed; use a model with another tokenizer"
    )


def _metaspace_strips(part: Mapping[str, object]) -> bool:
    if part.get("type") != "Metaspace":
        return False
    return part.get("prepend_scheme", "always") != "never" and part.get("add_prefix_space", True) is not False


def _adds_bos(backend: tokenizers.Tokenizer, config: Mapping[str, object], bos: int | None) -> bool:
    """The setting where there is one, else what the tokenizer's own post-processor does."""
    if bos is None:
        return False
    told = config.get("add_bos_token")
    if isinstance(told, bool):
        return told
    with shield(lambda why: LoadError(f"the tokenizer's post-processor fails ({why}); download it again")):
        return bool(backend.encode("", add_special_tokens=True).ids[:1] == [bos])


def _template(folder: Path, config: Mapping[str, object]) -> str | None:
    if (folder / "chat_template.jinja").is_file():
        return _read(folder / "chat_template.jinja")
    found = _json(folder / "chat_template.json").get("chat_template", config.get("chat_template"))
    if isinstance(found, list):  # several by name: the default one
        found = {t.get("name"): t.get("template") for t in found if isinstance(t, dict)}
    if isinstance(found, dict):
        found = found.get("default")
    return found if isinstance(found, str) else None
