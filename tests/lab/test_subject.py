"""Random networks in known shapes, memory readings, and what the figures need to know of a target."""

import pytest
import torch

from forerun.assemble import Config
from forerun.core.errors import SpecError
from forerun.lab.bandwidth import Bandwidth, reader, torch_read
from forerun.lab.bench import Bench
from forerun.lab.costs.curve import Grid, measure
from forerun.lab.machine import last_level_cache, moment, provenance, write_whole
from forerun.lab.shapes import SHAPES, random_checkpoint
from forerun.lab.subject import describe
from forerun.models.config import ModelConfig
from forerun.models.load import build_network
from forerun.native import ext
from forerun.testing.toy import ToyTarget, fixed_law
from forerun.weights.source import Take

RUNTIMES = [
    "torch",
    pytest.param("native", marks=pytest.mark.skipif(bool(ext.why_not()), reason="the extension is not compiled")),
]
BILLIONS = {"smollm2-135m": 0.135, "smollm2-360m": 0.362, "qwen2-0.5b": 0.494, "qwen3-0.6b": 0.596,
            "qwen2-1.5b": 1.544, "mistral-7b": 7.248}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_are_those_of_the_models_they_are_named_after(name):
    checkpoint = random_checkpoint(f"random:{name}")
    ModelConfig.from_hf(checkpoint.config)
    values = sum(torch.Size(checkpoint.tensors.shape(tensor)).numel() for tensor in checkpoint.tensors.names())
    assert name == "tiny" or values / 1e9 == pytest.approx(BILLIONS[name], abs=0.001)


def test_random_weights_are_finite_repeatable_and_enough_for_a_network():
    checkpoint = random_checkpoint("random:tiny")
    name = "model.layers.1.mlp.down_proj.weight"
    tensor = checkpoint.tensors.load(name)
    assert torch.equal(tensor, random_checkpoint("random:tiny").tensors.load(name))
    assert tensor.isfinite().all()
    assert len(tensor.unique(dim=0)) == len(tensor)
    config = ModelConfig.from_hf(checkpoint.config)
    network = build_network(config, Take(checkpoint.tensors), torch.float32, "cpu", 64)
    assert len(network.layers) == config.layers


def test_an_unknown_shape_names_the_nearest():
    with pytest.raises(SpecError, match=r"qwen2-1\.5b"):
        random_checkpoint("random:qwen2-1.5")


def open_random(**options):
    return Bench.open(Config("random:tiny", **options)).subject


@pytest.mark.parametrize("feed", ["chain", "tree", "prompt"])
def test_a_random_network_is_measured_on_the_torch_runtime(feed):
    grid = Grid((1, 4), (1, 2), (20, 40), 2, feed)
    subject = open_random(runtime="torch", dtype="bfloat16", kv_tokens=grid.kv_tokens)
    assert (subject.runtime, subject.weights, subject.kv) == ("torch", "bf16", "bf16")
    assert subject.weight_bytes == 2 * ModelConfig.from_hf(SHAPES["tiny"].config).matrix_values(2)
    assert subject.token_bytes == 2 * 2 * 2 * 16 * 2  # layers, keys and values, heads, dim, bytes
    samples = measure(subject.target, grid)
    assert set(samples.seconds) == set(grid.points)
    assert subject.target.usage.used == 0


@pytest.mark.skipif(bool(ext.why_not()), reason="the extension is not compiled")
@pytest.mark.parametrize(("weights", "kv"), [("bf16", "f32"), ("int8", "auto"), ("auto", "int8")])
def test_a_random_network_is_measured_on_the_native_runtime(weights, kv):
    grid = Grid((1, 20), (1, 2), (24,), 2, "tree")
    subject = open_random(runtime="native", weights=weights, kv=kv, kv_tokens=grid.kv_tokens)
    assert (subject.runtime, subject.weights) == ("native", weights)
    assert subject.kv == ("bf16" if kv == "auto" else kv)
    assert subject.isa in ext.extension().isas()
    values = ModelConfig.from_hf(SHAPES["tiny"].config).matrix_values(2)
    of_a_value = {"bf16": 2, "int8": 1, "auto": 2}[weights]  # the source holds bfloat16
    assert subject.weight_bytes == pytest.approx(values * of_a_value, rel=0.1)  # scales, norms
    assert set(measure(subject.target, grid).seconds) == set(grid.points)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_random_network_heeds_its_context_and_device(runtime):
    assert open_random(runtime=runtime, max_len=64).target.spec.max_len == 64
    with pytest.raises(SpecError, match="max_len is 9999"):
        open_random(runtime=runtime, max_len=9999)
    with pytest.raises(SpecError, match="nowhere"):
        open_random(runtime=runtime, device="nowhere")


def test_runtimes_that_are_not_ours_are_refused():
    with pytest.raises(SpecError, match="hf"):
        open_random(runtime="hf")
    with pytest.raises(SpecError, match="ToyTarget"):
        describe(ToyTarget(fixed_law([1.0]), 1))


def test_memory_is_read_at_a_speed_that_can_be():
    for read in {reader(), torch_read}:
        assert 1e8 < read(1 << 22, 0.01) < 1e13


def test_readings_are_as_large_as_the_weights_and_beyond_the_caches():
    sizes = []
    bandwidth = Bandwidth(100 << 20, lambda nbytes, seconds: sizes.append(nbytes) or 4e9, cache_bytes=96 << 20)
    bandwidth.measure()
    assert sizes == [100 << 20, 384 << 20]
    assert bandwidth.weights_fit is False
    assert bandwidth.share(2e9, 1.0) == 0.5
    assert bandwidth.to_json()["like_weights"] == 4.0


def test_251_the_best_reading_counts_and_no_model_is_faster_than_memory():
    speeds = iter([2e9, 1e9, 4e9, 1e9, 3e9, 2e9])
    bandwidth = Bandwidth(100 << 20, lambda nbytes, seconds: next(speeds), cache_bytes=96 << 20)
    for _ in range(3):
        bandwidth.measure()
    assert bandwidth.to_json()["like_weights"] == 4.0
    assert bandwidth.to_json()["beyond_caches"] == 2.0
    assert bandwidth.share(3e9, 1.0) == 0.75
    assert bandwidth.share(4e9, 1.0) == bandwidth.share(6.72e9, 1.0) == 1.0


@pytest.mark.parametrize(
    ("files", "size"), [({}, None), ({"0": "48K", "1": "2048K", "3": "260M"}, 260 << 20), ({"0": "odd"}, None)]
)
def test_the_largest_cache_counts(tmp_path, files, size):
    for name, text in files.items():
        (tmp_path / f"index{name}").mkdir()
        (tmp_path / f"index{name}" / "size").write_text(f"{text}\n")
    assert last_level_cache(tmp_path) == size


def test_a_figure_says_where_it_comes_from():
    found = provenance(["forerun", "lab", "a b"])
    assert found["command"] == "forerun lab 'a b'"
    assert {"processor", "torch", "forerun", "commit", "date", "cores", "load_average"} <= set(found)


def test_a_file_is_written_whole_or_refused_by_name(tmp_path):
    write_whole(tmp_path / "new" / "a.json", "{}")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.json"]
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match="cannot write"):
        write_whole(tmp_path / "file" / "a.json", "{}")
    (tmp_path / "folder").mkdir()
    with pytest.raises(SpecError, match="cannot write"):
        write_whole(tmp_path / "folder", "{}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "new"]


def test_a_file_that_is_broken_off_leaves_no_part(tmp_path, monkeypatch):
    def stop(path, target):
        raise KeyboardInterrupt

    monkeypatch.setattr("pathlib.Path.replace", stop)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "a.json", "{}")
    assert not list(tmp_path.iterdir())


def test_a_system_need_not_tell_its_load(monkeypatch):
    monkeypatch.delattr("os.getloadavg")
    assert moment()["load_average"] is None
