"""Fixtures that several rooms share: tiny models on disk, made once a run."""

import pytest

from forerun.testing.tiny import Tiny, write_folder, write_gguf


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Paths of tiny models: `folder` and `gguf` hold the same weights, `draft` is another model of their vocabulary."""
    root = tmp_path_factory.mktemp("models")
    return {
        "folder": write_folder(root / "folder"),
        "gguf": write_gguf(root / "tiny.gguf"),
        "draft": write_folder(root / "draft", Tiny(layers=1, seed=5)),
    }
