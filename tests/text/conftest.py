"""Small tokenizers of each kind, as GGUF metadata and as Hugging Face folders."""

import json
from pathlib import Path

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from forerun.text.pieces import byte_alphabet
from forerun.text.tokenizer import Settings, Tokenizer

ALPHABET = sorted(byte_alphabet())
WORDS = ["he", "ll", "hell", "hello", "Ġw", "Ġwo", "12", "Ġ1", "ĠĠ"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġw o", "1 2", "Ġ 1", "Ġ Ġ"]
SPECIAL = ["<unk>", "<s>", "</s>"]
TEMPLATE = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"


def bpe_metadata(pre: str | None = "gpt-2", **changes: object) -> dict[str, object]:
    tokens = [*SPECIAL, *ALPHABET, *WORDS, "<tool>"]
    out: dict[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3, 3] + [1] * (len(tokens) - 4) + [4],
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.chat_template": TEMPLATE,
    }
    out |= {f"tokenizer.ggml.{k}": v for k, v in changes.items()}
    return {k: v for k, v in out.items() if v is not None}


SPM = [
    "\u2581",
    "h",
    "e",
    "l",
    "o",
    "w",
    "\u2581h",
    "he",
    "ll",
    "hell",
    "\u2581hell",
    "hello",
    "\u2581hello",
    "\u2581w",
]


def spm_metadata(**changes: object) -> dict[str, object]:
    tokens = [*SPECIAL, *(f"<0x{b:02X}>" for b in range(256)), *SPM]
    out: dict[str, object] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(SPM),
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(i) for i in range(len(SPM), 0, -1)],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    out |= {f"tokenizer.ggml.{k}": v for k, v in changes.items()}
    return {k: v for k, v in out.items() if v is not None}


def bpe_folder(folder: Path, **config: object) -> Path:
    """The vocabulary of `bpe_metadata` as tokenizer.json, made by the library itself."""
    folder.mkdir(exist_ok=True)
    tokens = [*SPECIAL, *ALPHABET, *WORDS]
    model = models.BPE({t: i for i, t in enumerate(tokens)}, [tuple(m.split()) for m in MERGES])
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(SPECIAL)
    backend.add_tokens([AddedToken("<tool>", normalized=False)])
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    backend.enable_truncation(4)
    backend.enable_padding(length=16)
    backend.save(str(folder / "tokenizer.json"))
    named = {"bos_token": "<s>", "eos_token": {"content": "</s>", "special": True}, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(named | config))
    return folder


def spm_folder(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    from forerun.text.spm import merges_by_score

    meta = spm_metadata()
    tokens, scores = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.scores"]
    merges = merges_by_score(dict(zip(tokens[259:], scores[259:], strict=True)))
    model = models.BPE(
        {t: i for i, t in enumerate(tokens)}, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True
    )
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens(SPECIAL)
    backend.save(str(folder / "tokenizer.json"))
    (folder / "special_tokens_map.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    return folder


def of_pieces(pieces: list[bytes], *, strip_space: bool = False) -> Tokenizer:
    """A tokenizer that only decodes: id i stands for pieces[i], empty ones being special."""
    special = {i: f"<{i}>" for i, piece in enumerate(pieces) if not piece}
    return Tokenizer(tokenizers.Tokenizer(models.BPE()), pieces, special, Settings(strip_space=strip_space))


class Make:
    bpe_metadata = staticmethod(bpe_metadata)
    spm_metadata = staticmethod(spm_metadata)
    bpe_folder = staticmethod(bpe_folder)
    spm_folder = staticmethod(spm_folder)
    of_pieces = staticmethod(of_pieces)
    letters = staticmethod(lambda text: list(text.encode()))
    bytes_only = of_pieces([bytes([b]) for b in range(256)])


@pytest.fixture(scope="session")
def make() -> type[Make]:
    return Make
