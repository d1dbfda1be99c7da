"""A tokenizer out of GGUF metadata: byte-level BPE ("gpt2") or SentencePiece-style BPE ("llama").

Merges are required for the first, scores for the second; bos, eos, unk and pad are optional. A run of
unused tokens at the end is padding of the model's rows and is left out.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers

from forerun.core.errors import LoadError
from forerun.text import pretokenizers
from forerun.text.pieces import from_byte_level, from_sentencepiece, literal
from forerun.text.spm import merges_by_score
from forerun.text.tokenizer import CONTROL, Settings, Tokenizer, shield

_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
_ROLES = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
_KEY = "tokenizer.ggml."


def from_gguf(metadata: Mapping[str, object]) -> Tokenizer:
    """The tokenizer in a GGUF file's metadata; LoadError names the key that is missing or wrong."""
    kind = metadata.get(_KEY + "model")
    if kind not in ("gpt2", "llama"):
        raise LoadError(
            f"{_KEY}model is {repr(kind)[:80]} (allowed: 'gpt2', 'llama'); use the model's Hugging Face folder"
        )
    tokens = _tokens(metadata, kind)
    types = _column(metadata, kind, "token_type", int, len(tokens), required=False) or [_NORMAL] * len(tokens)
    while tokens and types[len(tokens) - 1] == _UNUSED:
        tokens.pop()
    types = [
        _CONTROL if t == _NORMAL and CONTROL.fullmatch(tokens[i]) else t for i, t in enumerate(types[: len(tokens)])
    ]
    ids = {role: _id(metadata, key, len(tokens)) for role, key in _ROLES.items()}
    specials = {f"{role}_token": tokens[i] for role, i in ids.items() if i is not None}
    special = {i: t for i, t in enumerate(tokens) if types[i] in (_CONTROL, _UNKNOWN)}
    unknown = None if ids["unk"] is None else tokens[ids["unk"]]
    build = _byte_level if kind == "gpt2" else _sentencepiece
    broken = "the tokenizer in this GGUF file cannot be built"
    with shield(lambda why: LoadError(f"{broken} ({why}); convert the model again")):
        backend, pieces, add_bos, strip = build(metadata, tokens, types, unknown)
        _add(backend, tokens, types)
    settings = Settings(
        bos_id=ids["bos"], eos_id=ids["eos"], unk_id=ids["unk"], pad_id=ids["pad"],
        eos_ids=_ends(metadata, len(tokens)),
        add_bos=_flag(metadata, "add_bos_token", add_bos),
        strip_space=strip,
        chat_template=_text(metadata, "tokenizer.chat_template"),
        specials=specials,
    )  # fmt: skip
    return Tokenizer(backend, pieces, special, settings)


def _byte_level(
    metadata: Mapping[str, object], tokens: list[str], types: list[int], unknown: str | None
) -> tuple[tokenizers.Tokenizer, list[bytes], bool, bool]:
    pre = pretokenizers.find(metadata.get(_KEY + "pre"))
    lines = _column(metadata, "gpt2", "merges", str, None, required=True)
    merges = [tuple(line.split(" ")) for line in lines]
    if bad := next((line for line, pair in zip(lines, merges, strict=True) if len(pair) != 2), None):
        raise LoadError(f"{_KEY}merges holds {bad[:80]!r} (allowed: two tokens and a space); convert the model again")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    model = models.BPE(vocabulary, merges, ignore_merges=pre.ignore_merges, fuse_unk=False)
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer, normalizer = pretokenizers.build(pre)
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.decoder = decoders.ByteLevel()
    pieces = [literal(t) if types[i] == _USER else from_byte_level(t) for i, t in enumerate(tokens)]
    return backend, pieces, pre.add_bos, False


def _sentencepiece(
    metadata: Mapping[str, object], tokens: list[str], types: list[int], unknown: str | None
) -> tuple[tokenizers.Tokenizer, list[bytes], bool, bool]:
    scores = _column(metadata, "llama", "scores", float, len(types), required=True)
    prefix = _flag(metadata, "add_space_prefix", True)
    words = {t: scores[i] for i, t in enumerate(tokens) if types[i] in (_NORMAL, _USER, _UNUSED)}
    vocabulary = {token: i for i, token in enumerate(tokens)}
    model = models.BPE(vocabulary, merges_by_score(words), unk_token=unknown, fuse_unk=True, byte_fallback=True)
    backend = tokenizers.Tokenizer(model)
    spaces = normalizers.Replace(" ", "\u2581")
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), spaces]) if prefix else spaces
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    pieces = [from_sentencepiece(t) for t in tokens]
    return backend, pieces, True, prefix


def _add(backend: tokenizers.Tokenizer, tokens: list[str], types: list[int]) -> None:
    kinds = [(t, types[i]) for i, t in enumerate(tokens) if t]
    backend.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t, kind in kinds if kind in (_CONTROL, _UNKNOWN)]
    )
    backend.add_tokens([AddedToken(t, special=False, normalized=False) for t, kind in kinds if kind == _USER])


def _tokens(metadata: Mapping[str, object], kind: object) -> list[str]:
    tokens: list[str] = _column(metadata, kind, "tokens", str, None, required=True)
    if not tokens:
        raise LoadError(f"{_KEY}tokens is empty; convert the model again")
    if len(set(tokens)) != len(tokens):
        double = Counter(tokens).most_common(1)[0][0]
        raise LoadError(f"{_KEY}tokens holds {double[:80]!r} twice; convert the model again")
    return list(tokens)


def _column(
    metadata: Mapping[str, object], kind: object, name: str, of: type, length: int | None, *, required: bool
) -> list[Any]:
    got = metadata.get(_KEY + name)
    if got is None and not required:
        return []
    if got is None:
        raise LoadError(f"{_KEY}{name} is missing, and tokenizer model {kind!r} needs it; convert the model again")
    good = isinstance(got, list) and all(type(v) is of for v in got)
    if not isinstance(got, list) or not good or (length is not None and len(got) != length):
        count = "any number" if length is None else str(length)
        raise LoadError(f"{_KEY}{name} must be a list of {count} {of.__name__} values; convert the model again")
    return got


def _id(metadata: Mapping[str, object], role: str, size: int) -> int | None:
    got = metadata.get(f"{_KEY}{role}_token_id")
    if got is None or got in (-1, 0xFFFFFFFF):
        return None
    if isinstance(got, bool) or not isinstance(got, int) or not 0 <= got < size:
        raise LoadError(
            f"{_KEY}{role}_token_id is {repr(got)[:80]} (allowed: 0 to {size - 1}); convert the model again"
        )
    return got


def _ends(metadata: Mapping[str, object], size: int) -> frozenset[int]:
    found = (_id(metadata, role, size) for role in ("eos", "eot", "eom"))
    return frozenset(i for i in found if i is not None)


def _flag(metadata: Mapping[str, object], name: str, default: bool) -> bool:
    got = metadata.get(_KEY + name, default)
    if not isinstance(got, bool):
        raise LoadError(f"{_KEY}{name} is {repr(got)[:80]} (allowed: true, false); convert the model again")
    return got


def _text(metadata: Mapping[str, object], key: str) -> str | None:
    got = metadata.get(key)
    return got if isinstance(got, str) else None
