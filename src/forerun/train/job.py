"""What is asked of one run of training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from forerun.core.errors import SpecError
from forerun.train.conversation import Manner
from forerun.train.data import OwnData, own_data
from forerun.train.domains import Mix
from forerun.train.gather import WIDTH, Own, SelfMade, Source
from forerun.train.overlap import Overlap
from forerun.train.recipe import Taught

DEFAULT_MIX = "chat:3,code:3,math:3,writing:2,knowledge:2,reasoning:2,russian:2"
_LEAST = {"minutes": 0.1, "steps": 1, "tokens": 1, "width": 1, "batch": 16, "measures": 1, "threads": 1}
_OPTIONS = {"steps": "--unroll"}
"""Of a recipe, what its option is called where that is another name."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is asked of one run; what is None follows from the rest."""

    kind: Taught | Literal["corpus"]
    model: str
    out: Path
    minutes: float | None = None
    corpus: Path | None = None
    also: tuple[Path, ...] = ()
    """More data that is captured already."""
    begin: str | None = None
    """A head that it begins from: a folder, `org/name`, or the kind of one that comes with forerun."""
    tokens: int | None = None
    data: tuple[Path, ...] = ()
    domain: str | None = None
    avoid: tuple[Path, ...] = ()
    taps: tuple[int, ...] | None = None
    answer_tokens: int | None = None
    recipe: dict[str, Any] = field(default_factory=dict)
    steps: int | None = None
    rate: float = 3e-3
    batch: int = 2048
    measures: int = 4
    seed: int = 0
    width: int = WIDTH
    weights: str | None = None
    threads: int | None = None
    device: str = "cpu"
    overwrite: bool = False
    command: str = ""

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise SpecError(f"{name} must be at least {least:g}, got {value}")
        if not 0 < self.rate < 1:
            raise SpecError(f"rate must be above 0 and below 1, got {self.rate}")
        if self.answer_tokens is not None and not 4 <= self.answer_tokens <= 1 << 16:
            raise SpecError(f"answers have from 4 to {1 << 16} tokens, got {self.answer_tokens}")
        if self.data and self.domain:
            raise SpecError(
                "--domain is for prompts that the target writes itself, --data answers yours: give one of them, or "
                "make a corpus of each and train on both with --corpus and --also"
            )
        if self.weights is not None and self.device.startswith("cuda"):
            raise SpecError(f"--weights is of the native runtime, on the CPU: on {self.device} the target is bfloat16")

    @property
    def manner(self) -> Manner:
        """How conversations are led."""
        return Manner() if self.answer_tokens is None else Manner(answer_tokens=self.answer_tokens)

    @property
    def seconds(self) -> float | None:
        return None if self.minutes is None else self.minutes * 60


@dataclass(frozen=True, slots=True)
class Data:
    """Where a job's prompts are from, and what is kept out of them: read once, before anything is loaded."""

    source: Source
    avoid: Overlap | None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, job: Job) -> Data:
        """LoadError or SpecError for what cannot be read."""
        avoid = Overlap.of_files(job.avoid) if job.avoid else None
        if not job.data:
            asked = job.domain or DEFAULT_MIX
            return cls(SelfMade(Mix.parse(asked), asked), avoid)
        own: OwnData = own_data(job.data)
        return cls(Own(own), avoid, own.notes)


def settings(job: Job, data: Data) -> dict[str, object]:
    """What a run is known again by, by the names of options: all that its result depends on."""

    def place(path: Path | None) -> str | None:
        return None if path is None else str(path.resolve())

    def given(paths: tuple[Path, ...]) -> list[str | None]:
        return [place(path) for path in paths]

    begin = job.begin
    if begin is not None and Path(begin).exists():
        begin = place(Path(begin))
    own: Mapping[str, object] = {_OPTIONS.get(name, f"--{name.replace('_', '-')}"): v for name, v in job.recipe.items()}
    return {
        "kind": job.kind, "--model": job.model, "--minutes": job.minutes, "--steps": job.steps,
        "--tokens": job.tokens, "--corpus": place(job.corpus), "--also": given(job.also), "--from": begin,
        "--data": given(job.data), "--domain": job.domain, "prompts with the digest": data.source.digest,
        "--avoid": given(job.avoid), "evaluation sets with the digest": data.avoid.digest if data.avoid else None,
        "--taps": None if job.taps is None else ",".join(map(str, job.taps)), "--answer-tokens": job.answer_tokens,
        "--weights": job.weights, **own, "--rate": job.rate, "--batch": job.batch, "--measures": job.measures,
        "--seed": job.seed, "--threads": job.threads, "--device": job.device,
    }  # fmt: skip
