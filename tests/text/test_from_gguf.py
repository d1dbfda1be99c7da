import pytest
from tokenizers import Regex, pre_tokenizers

from forerun.core.errors import LoadError
from forerun.text.from_folder import from_folder
from forerun.text.from_gguf import from_gguf
from forerun.text.pretokenizers import KINDS, build


@pytest.mark.parametrize(
    ("key", "says"),
    [("model", r"tokenizer\.ggml\.model is None"), ("tokens", r"tokenizer\.ggml\.tokens is missing"),
     ("merges", r"tokenizer\.ggml\.merges is missing, and tokenizer model 'gpt2'")],
)  # fmt: skip
def test_required_fields_are_named(key, says, make):
    with pytest.raises(LoadError, match=says):
        from_gguf(make.bpe_metadata(**{key: None}))


def test_scores_are_required_for_sentencepiece(make):
    with pytest.raises(LoadError, match=r"tokenizer\.ggml\.scores is missing, and tokenizer model 'llama'"):
        from_gguf(make.spm_metadata(scores=None))


@pytest.mark.parametrize("role", ["unknown", "bos", "eos"])
def test_optional_fields(role, make):
    assert from_gguf(make.spm_metadata(**{f"{role}_token_id": None})).encode("hello", bos=False)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"pre": "klingon"}, "tokenizer.ggml.pre is 'klingon'.*llama-bpe.*smollm"),
        ({"model": "bert"}, "allowed: 'gpt2', 'llama'"),
        ({"bos_token_id": 10**6}, "bos_token_id is 1000000"),
        ({"merges": ["a"]}, "merges holds 'a'"),
        ({"merges": ["qq zz"]}, "cannot be built"),
        ({"tokens": []}, "empty"),
        ({"token_type": [1, 2]}, "token_type must be a list of"),
    ],
)
def test_wrong_values(changes, says, make):
    with pytest.raises(LoadError, match=says):
        from_gguf(make.bpe_metadata(**changes))


def test_twice_the_same_token(make):
    tokens = make.bpe_metadata()["tokenizer.ggml.tokens"]
    with pytest.raises(LoadError, match="'<s>' twice"):
        from_gguf(make.bpe_metadata(tokens=["<s>", *tokens[1:]]))


def test_eot_counts_as_an_end(make):
    assert from_gguf(make.bpe_metadata(eot_token_id=5)).eos_ids == {2, 5}


def test_sentencepiece(make, tmp_path):
    ours = from_gguf(make.spm_metadata())
    names = make.spm_metadata()["tokenizer.ggml.tokens"]
    ids = ours.encode("hello w é", bos=True)
    assert [names[i] for i in ids] == ["<s>", "▁hello", "▁w", "▁", "<0xC3>", "<0xA9>"]
    assert ours.decode(ids) == "hello w é"
    assert ours.strip_space
    assert [ours.token_bytes(i) for i in ids[-2:]] == [b"\xc3", b"\xa9"]
    assert ours.differences(from_folder(make.spm_folder(tmp_path / "f"))) is None
    bare = from_gguf(make.spm_metadata(add_space_prefix=False))
    assert [names[i] for i in bare.encode("hello", bos=False)] == ["hello"]
    assert not bare.strip_space


def test_best_score_merges_first(make):
    scores = make.spm_metadata()["tokenizer.ggml.scores"][:]
    names = make.spm_metadata()["tokenizer.ggml.tokens"]
    scores[names.index("hell")], scores[names.index("\u2581h")] = -99.0, 0.0  # now ▁+h comes before h+e
    got = from_gguf(make.spm_metadata(scores=scores)).encode("hello", bos=False)
    assert next(names[i] for i in got) == "\u2581h"


def _words(kind, text):
    pre, _ = build(KINDS[kind])
    return [text[a:b] for _, (a, b) in pre.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("smollm", "a 123  b", ["a", " ", "1", "2", "3", " ", " b"]),
        ("gpt-2", "it's 123  b\n\nc", ["it", "'s", " 123", " ", " b", "\n", "\n", "c"]),
        ("llama-bpe", "IT'S 12345\n\nx!=y", ["IT", "'S", " ", "123", "45", "\n\n", "x", "!=", "y"]),
        ("qwen2", "x 123 (y)\r\n", ["x", " ", "1", "2", "3", " (", "y", ")\r\n"]),
        ("tekken", "HelloWorld 12", ["Hello", "World", " ", "1", "2"]),
        ("falcon", "ab 12345!?", ["ab", " ", "123", "45", "!?"]),
        ("deepseek-v3", "中文 1234 ok", ["中文", " ", "123", "4", " ok"]),
    ],
)
def test_cuts(kind, text, words):
    assert _words(kind, text) == words


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_loses_nothing(kind, make):
    text = "Hello, WORLD it's 12345  x\n\n\tçé 中文 🎉 don't!"
    assert from_gguf(make.bpe_metadata(kind)).decode(from_gguf(make.bpe_metadata(kind)).encode(text, bos=False)) == text


def test_smollm_equals_the_model_s_own_file():
    """SmolLM2's tokenizer.json: digits one by one, then GPT-2's byte level with its own pattern."""
    theirs = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    ours, _ = build(KINDS["smollm"])
    for text in ("a 12  3\n\n 4x", "it's  9 ٣ ½ ok", "   ", "\t\t1", "né 中文1"):
        assert ours.pre_tokenize_str(text) == theirs.pre_tokenize_str(text)
    assert Regex(r"\p{N}")
