import json

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.core.errors import LoadError
from forerun.text.from_folder import from_folder


def test_reads_all_its_files(make, tmp_path):
    got = from_folder(make.bpe_folder(tmp_path / "f"))
    assert (got.bos_id, got.eos_id, got.unk_id, got.pad_id) == (1, 2, None, None)
    assert got.specials == {"bos_token": "<s>", "eos_token": "</s>"}
    assert got.chat_template
    long = got.encode("hello hello hello hello", bos=True)  # the file truncates to 4 and pads to 16
    assert long[0] == 1
    assert got.decode(long) == "hello hello hello hello"


def test_add_bos_is_the_setting_else_the_post_processor(make, tmp_path):
    assert from_folder(make.bpe_folder(tmp_path / "a")).encode("12", bos=True)[0] == 1
    assert from_folder(make.bpe_folder(tmp_path / "b", add_bos_token=False)).encode("12", bos=True)[0] != 1
    assert from_folder(make.spm_folder(tmp_path / "c")).encode("hello", bos=True)[0] != 1


def test_templates_in_order_of_precedence(make, tmp_path):
    folder = make.bpe_folder(tmp_path / "f", chat_template=[{"name": "x", "template": "no"},
                                                           {"name": "default", "template": "list"}])  # fmt: skip
    assert from_folder(folder).chat_template == "list"
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": "json"}))
    assert from_folder(folder).chat_template == "json"
    (folder / "chat_template.jinja").write_text("jinja")
    assert from_folder(folder).chat_template == "jinja"


def test_what_is_missing(make, tmp_path):
    with pytest.raises(LoadError, match=r"tokenizer\.json is missing"):
        from_folder(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"x")
    with pytest.raises(LoadError, match=r"has tokenizer\.model but no tokenizer\.json: save it once"):
        from_folder(tmp_path)


@pytest.mark.parametrize("decoder", [None, {"type": "WordPiece", "prefix": "##", "cleanup": True}])
def test_decoders_whose_bytes_would_be_guessed(decoder, make, tmp_path):
    path = make.bpe_folder(tmp_path / "f") / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"decoder": decoder}))
    with pytest.raises(LoadError, match="decoder"):
        from_folder(path.parent)


@pytest.fixture(scope="module", params=["bpe_folder", "spm_folder"])
def pair(request, make, tmp_path_factory):
    folder = getattr(make, request.param)(tmp_path_factory.mktemp("t") / "f")
    backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.no_truncation()
    backend.no_padding()
    return from_folder(folder), backend


@given(st.text(max_size=30))
@settings(max_examples=60, deadline=None)
def test_decoding_is_the_library_s_for_every_text(pair, text):
    ours, theirs = pair
    ids = theirs.encode(text, add_special_tokens=False).ids
    assert ours.encode(text, bos=False) == ids
    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("token", ["\ud800", "a\udfff", {"content": "\ud800", "special": True}])
@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("role", ["bos_token", "pad_token"])
def test_266_half_a_character_as_a_token_is_one_line(make, tmp_path, token, file, role):
    folder = make.bpe_folder(tmp_path)
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / file).write_text(json.dumps({role: token}))
    with pytest.raises(LoadError, match=rf"{role} of .* half a character") as caught:
        from_folder(folder)
    assert "\n" not in str(caught.value)
