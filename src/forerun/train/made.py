"""What training makes: a head beside the target, a small model beside it, or a target of its own with heads. Each can
be served, for its tau to be measured, and be written as a folder that is drafted with at once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from safetensors.torch import save_file
from torch import Tensor

from forerun import heads
from forerun.assemble import Foundation, engine_over, foundation
from forerun.core.errors import BrokenInvariant
from forerun.core.options import Spec
from forerun.drafters.names import drafter_entry
from forerun.engine.engine import Engine
from forerun.models.heads.formats import own
from forerun.models.heads.head import Head
from forerun.models.opening import tokenizer_of
from forerun.text.from_folder import from_folder
from forerun.weights.folder import Checkpoint, open_checkpoint

_MEASURED = 1 << 14  # tokens of memory for a second target, while its tau is measured


class Made(Protocol):
    """A result of training."""

    @property
    def parameters(self) -> int:
        """Numbers that were trained or come with it."""
        ...

    def serving(self, base: Foundation, plan: str = "") -> Any:
        """A context with an engine that drafts with it; `plan` are further options of the drafter."""
        ...

    def write(self, out: Path, card: Mapping[str, Any]) -> None:
        """Write it into the folder `out`."""
        ...


@dataclass(frozen=True, slots=True)
class MadeHead:
    """A head for the target as it is. It is served as it will be written."""

    head: Head

    def __post_init__(self) -> None:
        object.__setattr__(self, "head", own.compacted(self.head))

    @property
    def parameters(self) -> int:
        return self.head.parameters

    @contextmanager
    def serving(self, base: Foundation, plan: str = "") -> Iterator[Engine]:
        spec = f"{self.head.kind}:{plan}" if plan else self.head.kind
        cls = drafter_entry(Spec.parse(spec).name).load()
        drafter = heads.beside(cls, self.head, cls.Options(), base.target, base.prices)
        with engine_over(base, spec, drafter) as engine:
            yield engine

    def write(self, out: Path, card: Mapping[str, Any]) -> None:
        own.write(replace(self.head, card=card), out)


@dataclass(frozen=True, slots=True)
class MadeModel:
    """A whole model with the tokenizer of `target`: config.json's values, and tensors by their names in model files."""

    target: Checkpoint
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    @property
    def parameters(self) -> int:
        return sum(value.numel() for value in self.tensors.values())

    @contextmanager
    def serving(self, base: Foundation, plan: str = "") -> Iterator[Engine]:
        with TemporaryDirectory(prefix="forerun-") as folder:
            self.write(Path(folder), {})
            spec = ",".join(filter(None, (f"model:path={folder}", plan)))
            with engine_over(base, spec) as engine:
                yield engine

    def write(self, out: Path, card: Mapping[str, Any]) -> None:
        """Config, weights in bfloat16 and the tokenizer's files; BrokenInvariant if it would read text otherwise."""
        out.mkdir(parents=True, exist_ok=True)
        _json(out / "config.json", self.config)
        tensors = {name: value.bfloat16().contiguous() for name, value in self.tensors.items()}
        save_file(tensors, out / "model.safetensors", {"format": "pt"})
        mine = tokenizer_of(self.target)
        state = mine.state()
        settings = {**mine.specials, "add_bos_token": state["settings"]["add_bos"], "chat_template": mine.chat_template}
        (out / "tokenizer.json").write_text(state["backend"], encoding="utf-8")
        _json(out / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **settings})
        _json(out / "generation_config.json", {"eos_token_id": sorted(self.target.eos_ids)})
        if difference := mine.differences(from_folder(out)):
            raise BrokenInvariant(f"the tokenizer written to {out} is not the target's: {difference}")
        if card:
            _json(out / "card.json", card)


@dataclass(frozen=True, slots=True)
class MadePair:
    """Medusa-2: a target that was trained on, and its heads, in the folder `medusa` of the target's."""

    model: MadeModel
    head: Head

    @property
    def parameters(self) -> int:
        return self.model.parameters + self.head.parameters

    @contextmanager
    def serving(self, base: Foundation, plan: str = "") -> Iterator[Engine]:
        with TemporaryDirectory(prefix="forerun-") as folder:
            self.model.write(Path(folder), {})
            memory = min(base.config.kv_tokens or _MEASURED, _MEASURED)
            new = foundation(replace(base.config, model=folder, kv_tokens=memory))
            with MadeHead(self.head).serving(new, plan) as engine:
                yield engine

    def write(self, out: Path, card: Mapping[str, Any]) -> None:
        self.model.write(out, card)
        head = replace(self.head, fingerprint=open_checkpoint(out).fingerprint, card=card)
        own.write(head, out / "medusa")


def _json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
