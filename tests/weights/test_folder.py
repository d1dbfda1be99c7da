import json
import shutil

import pytest
import torch
from safetensors.torch import save_file

from forerun.core.errors import LoadError
from forerun.weights.folder import open_checkpoint


def test_ends_are_the_union_of_all_sources(tiny, tmp_path):
    folder = tiny.folder(tmp_path / "f", config=tiny.config | {"eos_token_id": 1})
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 106]}))
    assert open_checkpoint(folder).eos_ids == {1, 106}
    assert open_checkpoint(tiny.gguf(tmp_path / "a.gguf")).eos_ids == {2, 7}
    bare = {k: v for k, v in tiny.config.items() if k != "eos_token_id"}
    assert open_checkpoint(tiny.folder(tmp_path / "g", config=bare)).eos_ids == frozenset()


def test_a_folder_with_one_gguf_is_that_file(tiny, tmp_path):
    tiny.gguf(tmp_path / "a.gguf")
    got = open_checkpoint(tmp_path)
    assert got.kind == "gguf"
    assert got.path == tmp_path / "a.gguf"
    assert "general.architecture" in got.metadata
    tiny.gguf(tmp_path / "b.gguf")
    with pytest.raises(LoadError, match=r"2 \.gguf files"):
        open_checkpoint(tmp_path)


def test_fingerprints_are_stable_and_tell_fine_tunes_apart(tiny, tmp_path):
    marks = []
    for i, seed in enumerate((0, 0, 1)):
        folder = tiny.folder(tmp_path / f"f{i}", tiny.weights(seed=seed))
        file = tiny.gguf(tmp_path / f"{i}.gguf", tiny.weights(seed=seed))
        marks.append((open_checkpoint(folder).fingerprint, open_checkpoint(file).fingerprint))
    assert marks[0] == marks[1]
    assert not set(marks[0]) & set(marks[2])
    assert all(len(m) == 16 for pair in marks for m in pair)


@pytest.mark.parametrize("name", ["model.safetensors", "eagle.safetensors"])
@pytest.mark.parametrize(
    ("tensors", "kind"),
    [({"fc.weight": torch.ones(4, 8), "d2t": torch.zeros(4)}, "an EAGLE head"),
     ({"0.0.linear.weight": torch.ones(4, 4), "0.1.weight": torch.ones(4, 4)}, "a Medusa head")],
)  # fmt: skip
def test_heads_are_recognised(name, tensors, kind, tmp_path):
    save_file(tensors, tmp_path / name)
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(LoadError, match=kind):
            open_checkpoint(path)


def test_what_is_not_a_model(tiny, tmp_path):
    with pytest.raises(LoadError, match="does not exist"):
        open_checkpoint(tmp_path / "nothing")
    with pytest.raises(LoadError, match="neither"):
        open_checkpoint(tmp_path)
    folder = tiny.folder(tmp_path / "f")
    (folder / "config.json").unlink()
    with pytest.raises(LoadError, match=r"config\.json is missing"):
        open_checkpoint(folder)
    shutil.copy(folder / "model.safetensors", tmp_path / "lone.safetensors")
    with pytest.raises(LoadError, match="pass its folder"):
        open_checkpoint(tmp_path / "lone.safetensors")
    (tmp_path / "note.txt").write_text("hello there, this is just a note to you")
    with pytest.raises(LoadError, match="not a GGUF file"):
        open_checkpoint(tmp_path / "note.txt")
