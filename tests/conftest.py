"""Fixtures that several rooms share: tiny models, made once a run, on both of our runtimes."""

import os
import tempfile

import pytest
import torch

from forerun.core.draft import Tree
from forerun.core.params import SamplingParams
from forerun.core.seq import Seq
from forerun.core.work import Item
from forerun.models.load import load_network
from forerun.models.opening import pack_now
from forerun.native import ext
from forerun.targets.native_runner import NativeRunner
from forerun.targets.paged import PagedTarget
from forerun.targets.torch_runner import TorchRunner
from forerun.testing.tiny import Tiny, write_folder, write_gguf
from forerun.weights.folder import open_checkpoint

RUNTIMES = [
    "torch",
    pytest.param("native", marks=pytest.mark.skipif(bool(ext.why_not()), reason=f"no native runtime: {ext.why_not()}")),
]
HOME, OWN_HOME = os.environ.get("FORERUN_HOME"), pytest.StashKey()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """A worker for each core that may be used; each holds models of its own, so no more than eight."""
    return min(8, os.cpu_count() if ext.why_not() else ext.cores())


def pytest_configure(config):
    config.stash[OWN_HOME] = tempfile.TemporaryDirectory(prefix="forerun-tests-")


def pytest_collection_modifyitems(items):
    """On portable kernels real models take as long as they take."""
    if os.environ.get("FORERUN_ISA") == "portable":
        for item in items:
            item.add_marker(pytest.mark.timeout(3600))


def pytest_unconfigure(config):
    config.stash[OWN_HOME].cleanup()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """A test has one thread unless it asks for more: on tiny models two would mostly wait for each other, and worse
    beside other workers. Tiny models are packed into a place of their own; real ones are kept, as the user's are."""
    torch.set_num_threads(1)
    if not ext.why_not() and ext.threads() != 1:
        ext.set_threads(1)
    home = HOME if item.get_closest_marker("real") else item.config.stash[OWN_HOME].name
    if home is None:
        os.environ.pop("FORERUN_HOME", None)
    else:
        os.environ["FORERUN_HOME"] = home


@pytest.fixture(scope="session", params=RUNTIMES)
def runtime(request):
    """Both of our own runtimes."""
    return request.param


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Paths of tiny models: `folder` and `gguf` hold the same weights, `draft` is another model of their vocabulary."""
    root = tmp_path_factory.mktemp("models")
    return {
        "folder": write_folder(root / "folder"),
        "gguf": write_gguf(root / "tiny.gguf"),
        "draft": write_folder(root / "draft", Tiny(layers=1, seed=5)),
    }


class Checked:
    """A target whose every row is compared with a forward from scratch, and whose fed tokens are counted."""

    def __init__(self, inner, fresh):
        self.inner, self.fresh, self.fed = inner, fresh, 0

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def score(self, work, keep=False, taps=()):
        rows = self.inner.score(work, keep)
        for b, item in enumerate(work):
            self.fed += len(item.certain) + item.fresh
            for node in range(item.seen, len(item.nodes)):
                path = [item.nodes.tokens[n] for n in (0, *item.nodes.path(node))]
                want = self.fresh([*item.seq.tokens[: item.stop], *path])
                torch.testing.assert_close(rows.raw(b, node), want, rtol=1e-4, atol=1e-4)
        return rows


class Transformer:
    """A real network of 32 ids (two layers of width 16, two heads, float32) behind as many targets as a test wants."""

    def __init__(self, runtime, folder, **extra):
        family = "mistral" if extra else "llama"
        tiny = Tiny(family, hidden=16, heads=2, kv_heads=2, inner=32, vocab=32, extra=extra)
        checkpoint = open_checkpoint(write_folder(folder, tiny, tokenizer=False))
        self.runtime = runtime
        if runtime == "torch":
            self.network = load_network(checkpoint, torch.float32, "cpu")
        else:
            self.packed = pack_now(checkpoint, "f32")

    def target(self, block_size=16, **options):
        if self.runtime == "native" and block_size != 16:
            pytest.skip("only torch has other block sizes: 16 is what a native key tile holds")
        runner = TorchRunner(self.network) if self.runtime == "torch" else NativeRunner(self.packed)
        return PagedTarget(runner, name="tiny", fingerprint="tiny", block_size=block_size, **options)

    def pad(self, target, padded):
        """Let a batch be one padded span, as on an accelerator, or not."""
        if self.runtime == "torch":
            object.__setattr__(target.runner.viewer, "padded", padded)
        elif padded:
            pytest.skip("padded batches are for accelerators, which torch alone runs on")

    def checked(self, **options):
        """A target that finds a wrong row at once."""
        return Checked(self.target(**options), self.row)

    def row(self, tokens):
        """The row after these tokens, from an empty memory."""
        target, seq = self.target(reuse=False), Seq(0, tokens, SamplingParams(), 256)
        target.begin(seq)
        return target.score([Item(seq, 0, len(seq) - 1, Tree.root(seq.last))]).raw(0, 0)


@pytest.fixture(scope="session")
def _transformers(tmp_path_factory):
    made = {}

    def make(runtime, **extra):
        key = (runtime, *extra.items())
        if key not in made:
            made[key] = Transformer(runtime, tmp_path_factory.mktemp("transformer"), **extra)
        return made[key]

    return make


@pytest.fixture
def transformer(runtime, _transformers):
    """A tiny network."""
    return _transformers(runtime)


@pytest.fixture
def windowed(runtime, _transformers):
    """The same with an attention window of eight tokens."""
    return _transformers(runtime, sliding_window=8)
