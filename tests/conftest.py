"""Fixtures that several rooms share: tiny models, made once a run."""

import pytest
import torch

from forerun.core.draft import Tree
from forerun.core.params import SamplingParams
from forerun.core.seq import Seq
from forerun.core.work import Item
from forerun.models.load import load_network
from forerun.targets.torch_target import TorchTarget
from forerun.testing.tiny import Tiny, write_folder, write_gguf
from forerun.weights.folder import open_checkpoint


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

    def score(self, work, keep=False):
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

    def __init__(self, folder, **extra):
        family = "mistral" if extra else "llama"
        tiny = Tiny(family, hidden=16, heads=2, kv_heads=2, inner=32, vocab=32, extra=extra)
        checkpoint = open_checkpoint(write_folder(folder, tiny, tokenizer=False))
        self.network = load_network(checkpoint, torch.float32, "cpu")

    def target(self, **options):
        return TorchTarget(self.network, name="tiny", fingerprint="tiny", **options)

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
    root = tmp_path_factory.mktemp("transformers")
    return {None: Transformer(root / "full"), 8: Transformer(root / "window", sliding_window=8)}


@pytest.fixture
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def transformer(_transformers, _one_thread):
    """A tiny network on one thread: two would mostly wait for each other."""
    return _transformers[None]


@pytest.fixture
def windowed(_transformers, _one_thread):
    """The same with an attention window of eight tokens."""
    return _transformers[8]
