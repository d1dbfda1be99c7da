"""How byte-level tokenizers in GGUF files cut text into words, by the file's `tokenizer.ggml.pre`.

The patterns are those of the models' own tokenizer.json files. A kind that is not here is refused:
a wrong cut gives plausible ids that the model has never seen. Qwen's text is NFC-normalised first, as
Qwen's own files ask.
"""

from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers

from forerun.core.errors import LoadError

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_REST}"
_QWEN2 = rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_REST}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = (rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+", rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*")
_TEKKEN = rf"{_CASED[0]}|{_CASED[1]}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_REST}"
_GPT4O = rf"{_CASED[0]}{_ENDINGS}?|{_CASED[1]}{_ENDINGS}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_REST}"
_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_DEEPSEEK3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    rf"""| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_REST}"""
)


@dataclass(frozen=True, slots=True)
class Pre:
    """Patterns applied one after another, and what else the kind implies."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False  # a word that is a token is taken whole
    add_bos: bool = False  # when the file does not say
    nfc: bool = False


_GPT2_PRE = Pre((_GPT2,))
_DIGITS = Pre((r"\p{N}", _GPT2))
_LLAMA3_PRE = Pre((_LLAMA3,), ignore_merges=True, add_bos=True)
_PLAIN3 = Pre((_LLAMA3,))
_QWEN = Pre((_QWEN2,), nfc=True)

KINDS: dict[str, Pre] = {
    "default": Pre((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4", "trillion"), _GPT2_PRE),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), _DIGITS),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"), _LLAMA3_PRE),
    **dict.fromkeys(("dbrx", "smaug-bpe"), _PLAIN3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), _QWEN),
    "stablelm2": Pre((_QWEN2,)),
    "falcon": Pre((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")),
    "tekken": Pre((_TEKKEN,), ignore_merges=True, add_bos=True),
    "gpt-4o": Pre((_GPT4O,)),
    "deepseek-coder": Pre((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}")),
    "deepseek-v3": Pre((r"\p{N}{1,3}", _KANA, _DEEPSEEK3)),
}


def find(kind: object) -> Pre:
    """The rules of a `tokenizer.ggml.pre` value; absent means "default". LoadError lists the known kinds."""
    if kind is None:
        kind = "default"
    if not isinstance(kind, str) or kind not in KINDS:
        raise LoadError(
            f"tokenizer.ggml.pre is {repr(kind)[:80]} (allowed: {', '.join(sorted(KINDS))}): "
            "text would be cut wrongly; use the model's Hugging Face folder"
        )
    return KINDS[kind]


def build(pre: Pre) -> tuple[pre_tokenizers.PreTokenizer, normalizers.Normalizer | None]:
    """The library's objects for these rules."""
    parts: list[pre_tokenizers.PreTokenizer] = [pre_tokenizers.Split(Regex(p), "isolated") for p in pre.patterns]
    parts.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    return pre_tokenizers.Sequence(parts), normalizers.NFC() if pre.nfc else None
