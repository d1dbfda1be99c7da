"""A tokenizer out of GGUF metadata: byte-level BPE ("gpt2") or SentencePiece-style BPE ("llama").

Merges are required for the first, scores for the second; bos, eos, unk and pad are optional. A run of
unused tokens at the end is padding of the model's rows and is left out. Odd values of what no text depends on are
ignored, with a note; a token that is not UTF-8, or an unused one that has another's name, keeps its bytes and is never
read out of a text.
"""

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
    notes: list[str] = []
    spelled = _column(metadata, kind, "tokens", (str, bytes), None, required=True)
    if not spelled:
        raise LoadError(f"{_KEY}tokens is empty; convert the model again")
    types = _column(metadata, kind, "token_type", int, len(spelled), required=False) or [_NORMAL] * len(spelled)
    while spelled and types[len(spelled) - 1] == _UNUSED:
        spelled = spelled[:-1]
    tokens = _names(spelled, types, notes)
    types = [
        _CONTROL if t == _NORMAL and CONTROL.fullmatch(tokens[i]) else t for i, t in enumerate(types[: len(tokens)])
    ]
    ids = {role: _id(metadata, key, len(tokens), notes) for role, key in _ROLES.items()}
    specials = {f"{role}_token": tokens[i] for role, i in ids.items() if i is not None}
    special = {i: _shown(t) for i, t in enumerate(spelled) if types[i] in (_CONTROL, _UNKNOWN)}
    unknown = None if ids["unk"] is None else tokens[ids["unk"]]
    build = _byte_level if kind == "gpt2" else _sentencepiece
    broken = "the tokenizer in this GGUF file cannot be built"
    with shield(lambda why: LoadError(f"{broken} ({why}); convert the model again")):
        backend, add_bos, strip = build(metadata, tokens, types, unknown, notes)
        _add(backend, [t if t == spelled[i] else "" for i, t in enumerate(tokens)], types)
    pieces = [_bytes(t, kind, types[i]) for i, t in enumerate(spelled)]
    settings = Settings(
        bos_id=ids["bos"], eos_id=ids["eos"], unk_id=ids["unk"], pad_id=ids["pad"],
        eos_ids=_ends(metadata, len(tokens), notes),
        add_bos=_flag(metadata, "add_bos_token", add_bos, notes),
        strip_space=strip,
        chat_template=_text(metadata, "tokenizer.chat_template", notes),
        specials=specials,
    )  # fmt: skip
    return Tokenizer(backend, pieces, special, settings, notes)


def _names(spelled: list[str | bytes], types: list[int], notes: list[str]) -> list[str]:
    """A name of its own for each token: its spelling, but for those that no text may become, which get one with a
    space. Two tokens in use of one spelling are an error."""
    first: dict[str | bytes, int] = {}
    for i, token in enumerate(spelled):
        other = first.setdefault(token, i)
        if other != i and types[other] == _UNUSED:
            first[token] = i
        elif other != i and types[i] != _UNUSED and token:
            raise LoadError(f"{_KEY}tokens holds {token[:80]!r} twice; convert the model again")
    twice = [i for i, token in enumerate(spelled) if first[token] != i]
    broken = [i for i, token in enumerate(spelled) if isinstance(token, bytes)]
    for odd, what in ((twice, "have another's name and are unused"), (broken, "are not UTF-8 text")):
        if odd:
            shown = ", ".join(map(str, odd[:5])) + (f" and {len(odd) - 5} more" if len(odd) > 5 else "")
            notes.append(f"tokens {shown} {what}: no text becomes them")
    hidden = {*twice, *broken}
    return [f" {i}" if i in hidden or isinstance(token, bytes) else token for i, token in enumerate(spelled)]


def _shown(token: str | bytes) -> str:
    return token.decode("utf-8", "replace") if isinstance(token, bytes) else token


def _bytes(token: str | bytes, kind: object, type_: int) -> bytes:
    """What a token stands for."""
    if isinstance(token, bytes):
        return token
    if kind == "llama":
        return from_sentencepiece(token)
    return literal(token) if type_ == _USER else from_byte_level(token)


def _byte_level(
    metadata: Mapping[str, object], tokens: list[str], types: list[int], unknown: str | None, notes: list[str]
) -> tuple[tokenizers.Tokenizer, bool, bool]:
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
    return backend, pre.add_bos, False


def _sentencepiece(
    metadata: Mapping[str, object], tokens: list[str], types: list[int], unknown: str | None, notes: list[str]
) -> tuple[tokenizers.Tokenizer, bool, bool]:
    scores = _column(metadata, "llama", "scores", float, len(types), required=True)
    prefix = _flag(metadata, "add_space_prefix", True, notes)
    words = {t: scores[i] for i, t in enumerate(tokens) if types[i] in (_NORMAL, _USER, _UNUSED)}
    vocabulary = {token: i for i, token in enumerate(tokens)}
    model = models.BPE(vocabulary, merges_by_score(words), unk_token=unknown, fuse_unk=True, byte_fallback=True)
    backend = tokenizers.Tokenizer(model)
    spaces = normalizers.Replace(" ", "\u2581")
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), spaces]) if prefix else spaces
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    return backend, True, prefix


def _add(backend: tokenizers.Tokenizer, tokens: list[str], types: list[int]) -> None:
    kinds = [(t, types[i]) for i, t in enumerate(tokens) if t]
    backend.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t, kind in kinds if kind in (_CONTROL, _UNKNOWN)]
    )
    backend.add_tokens([AddedToken(t, special=False, normalized=False) for t, kind in kinds if kind == _USER])


def _column(
    metadata: Mapping[str, object],
    kind: object,
    name: str,
    of: type | tuple[type, ...],
    length: int | None,
    *,
    required: bool,
) -> list[Any]:
    got = metadata.get(_KEY + name)
    if got is None and not required:
        return []
    if got is None:
        raise LoadError(f"{_KEY}{name} is missing, and tokenizer model {kind!r} needs it; convert the model again")
    kinds = of if isinstance(of, tuple) else (of,)
    good = isinstance(got, list) and all(type(v) in kinds for v in got)
    if not isinstance(got, list) or not good or (length is not None and len(got) != length):
        count = "any number" if length is None else str(length)
        raise LoadError(f"{_KEY}{name} must be a list of {count} {kinds[0].__name__} values; convert the model again")
    return got


def _id(metadata: Mapping[str, object], role: str, size: int, notes: list[str]) -> int | None:
    """The id in a role, None if there is none; where a text begins and ends must be right, others may be odd."""
    key = f"{_KEY}{role}_token_id"
    got = metadata.get(key)
    if got is None or got in (-1, 0xFFFFFFFF):
        return None
    if not isinstance(got, bool) and isinstance(got, int) and 0 <= got < size:
        return got
    said = f"{key} is {repr(got)[:80]} (allowed: 0 to {size - 1})"
    if role in ("bos", "eos"):
        raise LoadError(f"{said}; convert the model again")
    _note(notes, f"{said}: ignored")
    return None


def _ends(metadata: Mapping[str, object], size: int, notes: list[str]) -> frozenset[int]:
    found = (_id(metadata, role, size, notes) for role in ("eos", "eot", "eom"))
    return frozenset(i for i in found if i is not None)


def _flag(metadata: Mapping[str, object], name: str, default: bool, notes: list[str]) -> bool:
    got = metadata.get(_KEY + name)
    if got is None or isinstance(got, bool):
        return default if got is None else got
    value = bool(got) if got in (0, 1) else default
    _note(notes, f"{_KEY}{name} is {repr(got)[:80]} (allowed: true, false): taken for {str(value).lower()}")
    return value


def _text(metadata: Mapping[str, object], key: str, notes: list[str]) -> str | None:
    got = metadata.get(key)
    if got is not None and not isinstance(got, str):
        _note(notes, f"{key} is {repr(got)[:40]} (allowed: text): ignored")
    return got if isinstance(got, str) else None


def _note(notes: list[str], said: str) -> None:
    if said not in notes:
        notes.append(said)
