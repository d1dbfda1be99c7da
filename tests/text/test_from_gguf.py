import pytest
from tokenizers import Regex, pre_tokenizers

from forerun.core.errors import LoadError
from forerun.text.from_folder import from_folder
from forerun.text.from_gguf import from_gguf
from forerun.text.pretokenizers import KINDS, build
from forerun.text.tokenizer import Tokenizer


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


def _spelled(make, changes, **more):
    """Metadata of a byte-level tokenizer with some tokens respelled (None: unused ones of that spelling added)."""
    tokens = list(make.bpe_metadata()["tokenizer.ggml.tokens"])
    types = list(make.bpe_metadata()["tokenizer.ggml.token_type"])
    for token, kind in changes:
        tokens.insert(-1, token)
        types.insert(-1, kind)
    return make.bpe_metadata(tokens=tokens, token_type=types, **more)


ODD = {
    "a padding id out of range": {"padding_token_id": 10**6},
    "a padding id below it": {"padding_token_id": -7},
    "an unknown id out of range": {"unknown_token_id": 2**31},
    "an end of message out of range": {"eom_token_id": 99999},
    "an end of turn that is a number with a point": {"eot_token_id": 2.0},
    "a padding id that is text": {"padding_token_id": "</s>"},
    "an unknown id that is a truth": {"unknown_token_id": True},
    "an id that is bytes": {"padding_token_id": b"\xff"},
    "a template that is bytes": {"../chat_template": b"\xff"},
    "a list of templates": {"../chat_template": ["a", "b"]},
    "a flag that is a number": {"add_bos_token": 1},
    "a flag that is text": {"add_bos_token": "yes"},
}


@pytest.mark.parametrize("name", ODD)
def test_224_odd_values_of_what_no_text_depends_on_are_noted_and_ignored(name, make):
    changes = {k: v for k, v in ODD[name].items() if not k.startswith("../")}
    metadata = make.bpe_metadata(**changes)
    if "../chat_template" in ODD[name]:
        metadata["tokenizer.chat_template"] = ODD[name]["../chat_template"]
    got, plain = from_gguf(metadata), from_gguf(make.bpe_metadata())
    (note,) = got.notes
    assert next(iter(ODD[name])).removeprefix("../") in note
    assert not plain.notes
    assert got.eos_ids == plain.eos_ids
    assert got.encode("hello w<s>", bos=False) == plain.encode("hello w<s>", bos=False)
    unsaid = "add_bos_token" if name == "a flag that is text" else "nothing"  # as if it were not there
    assert got.encode("hello", bos=True) == from_gguf(make.bpe_metadata(**{unsaid: None})).encode("hello", bos=True)
    assert got.pad_id is got.unk_id is None
    assert (got.chat_template is None) == ("template" in name)


@pytest.mark.parametrize("role", ["bos", "eos"])
@pytest.mark.parametrize("value", [10**6, -5, "x", 1.0, True])
def test_224_where_a_text_begins_and_ends_must_be_right(role, value, make):
    with pytest.raises(LoadError, match=f"{role}_token_id is"):
        from_gguf(make.bpe_metadata(**{f"{role}_token_id": value}))


TWICE = {
    "unused ones of one spelling": [("[X]", 5), ("[X]", 5), ("[X]", 5)],
    "an unused one of a word's": [("hello", 5), ("he", 5)],
    "an unused one of a control token's": [("<s>", 5)],
    "unused ones without letters": [("", 5), ("", 5)],
    "empty ones": [("", 1), ("", 1)],
    "one that is not UTF-8": [(b"\xc3", 1), (b"\xff\xfe", 1)],
    "a control token that is not UTF-8": [(b"<|\xff|>", 3)],
}


@pytest.mark.parametrize("name", TWICE)
def test_224_tokens_that_no_text_can_become_keep_their_bytes(name, make):
    got, plain = from_gguf(_spelled(make, TWICE[name])), from_gguf(make.bpe_metadata())
    assert len(got.notes) == 1
    assert "no text becomes them" in got.notes[0]
    size = plain.size - 1
    odd = range(size, size + len(TWICE[name]))
    for text in ("hello he <s> x", "[X] 1", " 296 ", "é\x00", "<tool> <| |>"):
        ids = got.encode(text, bos=False)
        assert [i if i < size else i - len(odd) for i in ids if i not in odd] == plain.encode(
            text, bos=False
        ) or "[X]" in text
        assert not set(ids) & set(odd) or "[X]" in text
        assert got.decode(ids) == plain.decode(plain.encode(text, bos=False))
    for i, (token, kind) in zip(odd, TWICE[name], strict=True):
        assert got.token_bytes(i) == (b"" if kind == 3 else token if isinstance(token, bytes) else token.encode())
    assert Tokenizer.from_state(got.state()).fingerprint == got.fingerprint


def test_224_two_tokens_in_use_of_one_spelling_are_refused(make):
    with pytest.raises(LoadError, match=r"tokens holds 'hello' twice"):
        from_gguf(_spelled(make, [("hello", 1)]))
    with pytest.raises(LoadError, match=r"merges must be a list of any number str values"):
        from_gguf(make.bpe_metadata(merges=["h e", b"\xff"]))


def test_224_sentencepiece_too(make):
    metadata = make.spm_metadata()
    for key, value in (
        ("tokens", [b"\xe2\x96", "hello", "\u2581"]),
        ("token_type", [1, 5, 5]),
        ("scores", [0.0, 9.0, 9.0]),
    ):
        metadata[f"tokenizer.ggml.{key}"] = [*metadata[f"tokenizer.ggml.{key}"], *value]
    metadata["tokenizer.ggml.token_type"][-1] = 1
    metadata["tokenizer.ggml.tokens"][-1] = "zz"
    got, plain = from_gguf(metadata), from_gguf(make.spm_metadata())
    assert len(got.notes) == 2
    for text in ("hello w é", "h e", " 274"):
        assert got.encode(text, bos=True) == plain.encode(text, bos=True)
    assert got.token_bytes(plain.size) == b"\xe2\x96"
    assert got.token_bytes(plain.size + 1) == b"hello"
