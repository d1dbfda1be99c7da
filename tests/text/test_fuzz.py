"""Damaged tokenizers: only our own errors come out, at loading or at use."""

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forerun.core.errors import CapacityError, LoadError, SpecError
from forerun.text.chat import render
from forerun.text.from_folder import from_folder
from forerun.text.from_gguf import from_gguf

OURS = (LoadError, SpecError, CapacityError)
FUZZ = settings(max_examples=100, deadline=5000, suppress_health_check=[HealthCheck.function_scoped_fixture])
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 300), st.sampled_from([2**31, 2**63, 2**64, -(2**31)]), st.floats(),
    st.text(max_size=4), st.lists(st.text(max_size=3), max_size=4), st.lists(st.integers(-1, 7), max_size=4),
    st.lists(st.floats(), max_size=3), st.just(["a b"] * 3), st.just(["x" * 5000]), st.just({}),
    st.just({"type": "Fuse"}),
)  # fmt: skip


def use(load):
    try:
        tokenizer = load()
        ids = tokenizer.encode("hello <s> wörld 12", bos=True)
        assert all(0 <= i < tokenizer.size for i in ids)
        tokenizer.decode(range(-1, tokenizer.size + 1))
        assert tokenizer.size < 1 << 22
        render(tokenizer, [{"role": "user", "content": "x"}])
    except OURS as error:
        said = str(error)
    else:
        return
    assert said.strip()


@FUZZ
@given(data=st.data(), spm=st.booleans())
def test_gguf_metadata(data, spm, make):
    meta = dict(make.spm_metadata() if spm else make.bpe_metadata())
    for _ in range(data.draw(st.integers(1, 3))):
        key = data.draw(st.sampled_from(sorted(meta)))
        value = meta[key]
        if isinstance(value, list) and value and data.draw(st.booleans()):
            value = list(value)
            value[data.draw(st.integers(0, len(value) - 1))] = data.draw(VALUES)
            meta[key] = value
        else:
            meta[key] = data.draw(VALUES)
    use(lambda: from_gguf(meta))


def _paths(node, at=()):
    yield at
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in list(children)[:40]:
        yield from _paths(child, (*at, key))


@pytest.fixture(scope="module")
def folders(make, tmp_path_factory):
    root = tmp_path_factory.mktemp("fuzz")
    return [make.bpe_folder(root / "bpe"), make.spm_folder(root / "spm")]


@FUZZ
@given(data=st.data())
def test_json_values(data, folders):
    source = data.draw(st.sampled_from(folders))
    name = data.draw(st.sampled_from(["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"]))
    target = source.parent / "edited"
    target.mkdir(exist_ok=True)
    for file in target.iterdir():
        file.unlink()
    for file in source.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    tree = json.loads((source / name).read_text()) if (source / name).exists() else {"bos_token": "<s>"}
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from([p for p in _paths(tree) if p]))
        node = tree
        for step in path[:-1]:
            node = node[step]
        node[path[-1]] = copy.deepcopy(data.draw(VALUES))
    (target / name).write_text(json.dumps(tree))
    use(lambda: from_folder(target))


@FUZZ
@given(data=st.data())
def test_bytes(data, folders):
    source = data.draw(st.sampled_from(folders))
    target = source.parent / "torn"
    target.mkdir(exist_ok=True)
    raw = bytearray((source / "tokenizer.json").read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    (target / "tokenizer.json").write_bytes(
        raw[: data.draw(st.sampled_from([len(raw), len(raw) - 1, len(raw) // 2, 0]))]
    )
    use(lambda: from_folder(target))


@FUZZ
@given(template=st.text(alphabet="{}%# ifordsetmxe=.|()'\"-1", max_size=30))
def test_templates(template, make):
    use(lambda: from_gguf(make.bpe_metadata() | {"tokenizer.chat_template": template}))
