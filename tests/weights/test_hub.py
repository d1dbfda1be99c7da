"""What of a repository on the hub is downloaded (docs/failures.md, 222), on a hub of our own making."""

from fnmatch import fnmatch

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

from forerun.core.errors import LoadError, SpecError
from forerun.core.options import Spec
from forerun.weights import pull
from forerun.weights.hub import hub_name

SIDE = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "README.md",
    ".gitattributes",
]
QUANTS = ["Q2_K", "Q3_K_M", "Q4_0", "Q4_K_M", "Q4_K_S", "Q5_K_M", "Q6_K", "Q8_0", "BF16", "F16"]
MANY = [f"Llama-7B.{quant}.gguf" for quant in QUANTS]
SPLIT = [f"Q8_0/big-Q8_0-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
SHARDS = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub: files of repositories by name, what was asked for, and whether it can be reached."""

    class Hub:
        online, gone = True, OfflineModeIsEnabled("offline")
        repositories: dict[str, list[str]] = {}  # noqa: RUF012
        asked: list[str] = []  # noqa: RUF012
        content = '{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}'

        def files(self, repository):
            folder = tmp_path / "cache" / repository
            return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())

    hub = Hub()
    hub.repositories, hub.asked = {}, []

    def list_repo_files(repository, **options):
        if not hub.online:
            raise hub.gone
        return hub.repositories[repository]

    def snapshot_download(repository, allow_patterns=None, local_files_only=False, **options):
        folder = tmp_path / "cache" / repository
        if local_files_only or not hub.online:
            if not folder.exists():
                raise LocalEntryNotFoundError("not cached")
            return str(folder)
        for name in hub.repositories[repository]:
            if any(fnmatch(name, pattern) for pattern in allow_patterns):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(hub.content)
                hub.asked.append(name)
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "list_repo_files", list_repo_files)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return hub


CHOSEN = {
    "o/m:Q4_K_M": ["Llama-7B.Q4_K_M.gguf"],
    "o/m:q4_k_m": ["Llama-7B.Q4_K_M.gguf"],
    "o/m:F16": ["Llama-7B.F16.gguf"],
    "o/m:Q4_0": ["Llama-7B.Q4_0.gguf"],
    "o/m/Llama-7B.Q2_K.gguf": ["Llama-7B.Q2_K.gguf"],
}


@pytest.mark.parametrize("name", CHOSEN)
def test_222_one_of_many_is_downloaded_and_nothing_else(name, hub):
    hub.repositories["o/m"] = [*MANY, *SIDE, "mmproj-F16.gguf", "Llama-7B.imatrix.gguf"]
    path = pull.resolve(name)
    assert hub.files("o/m") == hub.asked == CHOSEN[name]
    assert path.name == CHOSEN[name][0]
    hub.online = False
    assert pull.resolve(name) == path  # out of the cache
    assert pull.resolve("o/m") == path  # the only one there


@pytest.mark.parametrize("name", ["o/m", "o/m:Q4_K", "o/m:Q9_K_M", "o/m/none.gguf", "o/m:K_M"])
def test_222_choices_are_listed(name, hub):
    hub.repositories["o/m"] = [*MANY, *SIDE]
    with pytest.raises(SpecError, match=r"o/m holds .*name one, as o/m:\w+; there are") as caught:
        pull.resolve(name)
    wanted = ("Q3_K_M", "Q4_K_M", "Q5_K_M") if name == "o/m:K_M" else QUANTS
    assert all(quant in str(caught.value) for quant in wanted)
    assert not hub.asked


def test_222_quantisations_of_one_name_are_told_apart_by_file(hub):
    hub.repositories["o/m"] = ["a-UD-Q4_K_XL.gguf", "a-Q4_K_XL.gguf", "b-Q2_K.gguf", "c-Q2_K.gguf", "odd.gguf"]
    assert pull.resolve("o/m:Q4_K_XL").name == "a-Q4_K_XL.gguf"
    assert pull.resolve("o/m:UD-Q4_K_XL").name == "a-UD-Q4_K_XL.gguf"
    with pytest.raises(SpecError, match=r"2 GGUF models called Q2_K: name one, as o/m/b-Q2_K\.gguf; .*c-Q2_K\.gguf"):
        pull.resolve("o/m:Q2_K")
    assert pull.resolve("o/m:odd").name == "odd.gguf"


@pytest.mark.parametrize("name", ["o/m:Q8_0", f"o/m/{SPLIT[0]}", f"o/m/{SPLIT[1]}"])
def test_222_all_parts_of_a_split_model_come(name, hub):
    hub.repositories["o/m"] = [*SPLIT, "Q4_0/big-Q4_0-00001-of-00002.gguf", "Q4_0/big-Q4_0-00002-of-00002.gguf", *SIDE]
    assert pull.resolve(name).as_posix().endswith(SPLIT[0])
    assert hub.files("o/m") == SPLIT
    hub.online = False
    assert pull.resolve(name).as_posix().endswith(SPLIT[0])
    with pytest.raises((SpecError, LoadError), match=r"no GGUF models called Q4_0|not in the cache"):
        pull.resolve("o/m:Q4_0")
    hub.online = True
    hub.repositories["o/m"].remove(SPLIT[2])
    with pytest.raises(LoadError, match=r"o/m lacks Q8_0/big-Q8_0-00003-of-00003\.gguf"):
        pull.resolve("o/m:Q8_0")


FOLDERS = {
    "one file": (
        ["model.safetensors", "consolidated.safetensors", "pytorch_model.bin", "original/model.safetensors"],
        ["model.safetensors"],
    ),
    "shards": (
        [*SHARDS, "model.safetensors.index.json", "consolidated.safetensors", "model-00001-of-00003.safetensors"],
        [*SHARDS, "model.safetensors.index.json"],
    ),
    "one file and shards": (["model.safetensors", *SHARDS, "model.safetensors.index.json"], ["model.safetensors"]),
    "shards without an index": ([*SHARDS, "consolidated.00.pth"], SHARDS),
    "another name": (["weights.safetensors", "adapter_model.safetensors", "onnx/model.onnx"], ["weights.safetensors"]),
    "beside GGUF files": (["model.safetensors", *MANY, "tf_model.h5"], ["model.safetensors"]),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_222_of_a_folder_its_own_weights_come(name, hub):
    there, wanted = FOLDERS[name]
    hub.repositories["o/m"] = [*there, *SIDE, "subfolder/config.json", "adapter_config.json"]
    path = pull.resolve("o/m")
    assert path.is_dir()
    assert hub.files("o/m") == sorted([*wanted, *SIDE[:4]])
    hub.online = False
    assert pull.resolve("o/m") == path


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (["adapter_config.json", "adapter_model.safetensors"], "LoRA adapter"),
        (["consolidated.safetensors", "params.json"], "own format"),
        (["pytorch_model.bin", "config.json"], "pickled weights"),
        (["README.md"], "no weights that can be read"),
    ],
)
def test_222_what_is_no_model_is_not_downloaded(files, says, hub):
    hub.repositories["o/m"] = files
    with pytest.raises(LoadError, match=says):
        pull.resolve("o/m")
    assert not hub.asked
    with pytest.raises(SpecError, match=r"nor any other .gguf file"):
        pull.resolve("o/m:Q4_0")


@pytest.mark.parametrize("gone", [OfflineModeIsEnabled("offline"), ConnectionError("no route"), TimeoutError("slow")])
def test_222_without_a_network_and_a_cache_there_is_one_line(gone, hub):
    hub.online, hub.gone = False, gone
    with pytest.raises(LoadError, match=r"offline|no route|slow") as caught:
        pull.resolve("o/m:Q4_0")
    assert "\n" not in str(caught.value)


def test_222_names_of_the_hub_and_paths_are_told_apart(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "o" / "m:Q4_0").mkdir(parents=True)
    assert pull.resolve("o/m:Q4_0").as_posix() == "o/m:Q4_0"  # a path that exists is itself
    for name in ("models/a/b.gguf", "./a/b/c.gguf", "/a/b/c.gguf", "a.gguf", "a/b.gguf", "a/b.safetensors"):
        with pytest.raises(SpecError, match="does not exist"):
            pull.resolve(name)
    for name in ("a/b/c", "a/b:c:d", "a:Q4_0", "a/b:", "a/b/c.bin"):
        with pytest.raises(SpecError, match=r"owner/name:Q4_K_M or owner/name/file\.gguf"):
            pull.resolve(name)
    with pytest.raises(SpecError, match="a head is a folder, or owner/name"):
        pull.resolve_head("o/m:Q4_0")
    assert hub_name("o/m:Q4_K_M") == ("o/m", "Q4_K_M")
    assert Spec.parse("model:path=o/m:Q4_K_M,depth=3").values["path"] == "o/m:Q4_K_M"
