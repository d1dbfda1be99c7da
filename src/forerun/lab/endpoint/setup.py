"""What a run against a server measures, and what the server says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from forerun.core.errors import SpecError, unknown
from forerun.lab.endpoint.client import Address
from forerun.lab.endpoint.load import Patience
from forerun.lab.endpoint.plan import PREFIXES, Prefix
from forerun.lab.endpoint.request import Ask, Form


@dataclass(frozen=True, slots=True)
class Setup:
    """What a run measures; every field but `key` may stand in a file."""

    address: Address
    models: tuple[str, ...]
    levels: tuple[int, ...]
    """Requests at once."""
    ask: Ask = field(default_factory=Ask)
    rounds: int = 1
    prefix: Prefix = "cold"
    patience: Patience = field(default_factory=Patience)
    timeout_s: float = 300.0
    idle_s: float = 30.0
    key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.models or len(set(self.models)) < len(self.models):
            raise SpecError(f"--model takes different names, got {', '.join(self.models) or 'none'}")
        if len(set(self.levels)) < len(self.levels):
            raise SpecError(f"--concurrency takes different numbers, got {','.join(map(str, self.levels))}")
        if self.prefix not in PREFIXES:
            raise unknown("prefix", self.prefix, PREFIXES)
        for option, value, least in (
            ("--timeout", self.timeout_s, 0.0),
            ("--idle-wait", self.idle_s, -1e-9),
            ("--rounds", self.rounds, 0),
        ):
            if not least < value < 1e6:
                raise SpecError(f"{option} is out of range: {value:g}")


@dataclass(frozen=True, slots=True)
class Told:
    """What the server says of itself."""

    software: str
    models: tuple[str, ...]
    forms: Mapping[str, Form]

    def to_json(self) -> dict[str, object]:
        """For the bench."""
        forms = {model: {"usage": f.usage, "limit": f.limit, **f.extra} for model, f in self.forms.items()}
        return {"software": self.software, "lists": list(self.models), "asked_as": forms}
