import json

import pytest

from forerun.core.errors import LoadError, SpecError
from forerun.text.from_folder import from_folder
from forerun.text.from_gguf import from_gguf
from forerun.text.tokenizer import Tokenizer


@pytest.fixture
def bpe(make):
    return from_gguf(make.bpe_metadata())


def test_bos_is_added_once_and_never_to_a_template(bpe):
    plain = bpe.encode("hello", bos=False)
    assert bpe.encode("hello", bos=True) == [1, *plain]
    assert bpe.encode("<s>hello", bos=True) == bpe.encode("<s>hello", bos=False) == [1, *plain]


def test_a_template_s_own_ids_are_kept(make):
    tokenizer = from_gguf(make.bpe_metadata(add_bos_token=False))
    assert tokenizer.encode("<s></s>hello", bos=True)[:2] == [1, 2]
    assert tokenizer.encode("hello", bos=True)[0] != 1


def test_special_tokens_in_text_are_parsed_and_have_no_bytes(bpe):
    ids = bpe.encode("hello</s><tool>", bos=False)
    assert 2 in ids
    assert bpe.special == {0, 1, 2}
    assert bpe.decode(ids) == "hello<tool>"
    assert bpe.token_bytes(2) == b""
    assert bpe.token_bytes(ids[-1]) == b"<tool>"


def test_bytes_are_the_token_s_own(bpe):
    ids = bpe.encode("\U0001f389", bos=False)
    assert [bpe.token_bytes(i) for i in ids] == [b"\xf0", b"\x9f", b"\x8e", b"\x89"]
    assert bpe.decode(ids[:2]) == "\ufffd"


def test_ids_beyond_the_real_ones_stand_for_nothing(bpe):
    assert bpe.token_bytes(bpe.size) == bpe.token_bytes(-1) == b""


def test_lone_surrogates_are_refused(bpe):
    with pytest.raises(SpecError, match="valid Unicode"):
        bpe.encode("\ud800", bos=False)


def test_optional_ids(make):
    tokenizer = from_gguf(make.bpe_metadata(bos_token_id=None, eos_token_id=None))
    assert tokenizer.eos_id is None
    assert tokenizer.eos_ids == frozenset()
    assert tokenizer.specials == {}
    assert tokenizer.encode("hello", bos=True) == tokenizer.encode("hello", bos=False)


def test_padding_rows_are_no_difference_but_other_tokens_are(make, bpe):
    meta = make.bpe_metadata()
    tokens, types = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    padded = from_gguf(make.bpe_metadata(tokens=[*tokens, "[PAD0]", "[PAD1]"], token_type=[*types, 5, 5]))
    assert padded.size == bpe.size
    assert bpe.differences(padded) is None
    assert padded.fingerprint == bpe.fingerprint
    other = from_gguf(make.bpe_metadata(tokens=[*tokens[:-1], "<other>"]))
    assert bpe.differences(other) == f"id {bpe.size - 1} is '<tool>' in one tokenizer and '<other>' in the other"
    longer = from_gguf(make.bpe_metadata(tokens=[*tokens, "zz"], token_type=[*types, 1]))
    assert f"id {bpe.size} is 'zz' there" in longer.differences(bpe)


def test_both_formats_agree(make, bpe, tmp_path):
    folder = from_folder(make.bpe_folder(tmp_path / "f"))
    assert folder.differences(bpe) is None
    for text in ("hello world 123", "  two\n\n lines", "über 12", ""):
        assert folder.encode(text, bos=True) == bpe.encode(text, bos=True)


@pytest.mark.parametrize("kind", ["bpe gguf", "spm gguf", "bpe folder", "spm folder", "qwen gguf"])
def test_a_state_gives_the_same_tokenizer_again(kind, make, tmp_path):
    tokenizer = {
        "bpe gguf": lambda: from_gguf(make.bpe_metadata(eot_token_id=260)),
        "qwen gguf": lambda: from_gguf(make.bpe_metadata("qwen2")),
        "spm gguf": lambda: from_gguf(make.spm_metadata()),
        "bpe folder": lambda: from_folder(make.bpe_folder(tmp_path / "m")),
        "spm folder": lambda: from_folder(make.spm_folder(tmp_path / "m")),
    }[kind]()
    again = Tokenizer.from_state(json.loads(json.dumps(tokenizer.state())))
    same = ("size", "bos_id", "eos_id", "eos_ids", "unk_id", "pad_id", "special", "specials", "strip_space")
    for name in (*same, "chat_template", "fingerprint"):
        assert getattr(again, name) == getattr(tokenizer, name), name
    assert again.differences(tokenizer) is None
    texts = ["", " ", "hello", " hello world 1 12", "hell<tool>o</s>\n", "é 漢字 🙂 e\u0301", "<s>hello", "a\x00b"]
    for text in texts:
        for bos in (True, False):
            ids = tokenizer.encode(text, bos=bos)
            assert again.encode(text, bos=bos) == ids
            assert again.decode(ids) == tokenizer.decode(ids)
    assert [again.token_bytes(i) for i in range(again.size)] == [tokenizer.token_bytes(i) for i in range(again.size)]
    assert again.state() == tokenizer.state()


@pytest.mark.parametrize(
    "change", [{"pieces": "?"}, {"lengths": 3}, {"backend": "{}"}, {"settings": {"x": 1}}, {"special": {"a": "b"}}]
)
def test_a_damaged_state_is_a_load_error(change, make):
    state = {**make.bytes_only.state(), **change}
    with pytest.raises(LoadError):
        Tokenizer.from_state(state)
