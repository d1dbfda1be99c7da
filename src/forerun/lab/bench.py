"""One target, loaded once, and every arm that answers with it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from forerun.assemble import Config, Foundation, default_prices, engine_over, foundation
from forerun.control.fixed import Fixed
from forerun.core.errors import SpecError
from forerun.core.options import Spec
from forerun.core.plan import Plan
from forerun.core.protocols import Drafter, Target
from forerun.costs import prices
from forerun.drafters.specs import split_plan
from forerun.lab import machine
from forerun.lab.arms import BareArm, EngineArm
from forerun.lab.bandwidth import Bandwidth, reader
from forerun.lab.shapes import is_random
from forerun.lab.subject import Subject, describe, random_target

PLAIN, AGAIN = "plain", "plain again"
Key = tuple[str, tuple[tuple[str, object], ...]]
"""Of a drafter: its name and its own options."""


@dataclass(slots=True)
class Bench:
    """Arms over one target; drafters with the same options of their own are made once and used in turn."""

    base: Foundation
    subject: Subject
    drafters: dict[Key, Drafter] = field(default_factory=dict)
    _arms: dict[str, Key] = field(default_factory=dict)  # the drafter of an arm, by the arm's name
    _made_mb: dict[Key, float] = field(default_factory=dict)
    _used_mb: dict[Key, float] = field(default_factory=dict)

    @classmethod
    def open(cls, config: Config) -> Bench:
        """Load the model of `config` (or `random:NAME`); prompts are not shared between arms, or the second would find
        them in memory. Raises as `forerun.load`; SpecError for a runtime that is not ours."""
        config = replace(config, reuse=False, drafter="none")
        if config.runtime == "hf":
            raise SpecError("the lab measures our own runtimes: runtime native or torch, got hf")
        if is_random(config.model):
            target = random_target(config)
            own = prices.said(config.costs) or default_prices(config, target)
            return cls(Foundation(config, target, None, frozenset(), prices=own), describe(target))
        base = foundation(config)
        return cls(base, describe(base.target))

    @property
    def target(self) -> Target:
        """The model."""
        return self.base.target

    def arm(self, drafter: str, name: str | None = None) -> EngineArm:
        """The engine with the drafter of this spec (`none` is plain decoding)."""
        before = machine.resident_mb()
        spec = Spec.parse(drafter)
        _, _, own = split_plan(spec)
        key = (spec.name, tuple(sorted(own.items())))
        engine = engine_over(self.base, drafter, self.drafters.get(key))
        self.drafters[key] = engine.parts.drafter
        self._made_mb.setdefault(key, machine.resident_mb() - before)
        called = name or drafter
        self._arms[called] = key
        return EngineArm(called, engine)

    def plan_arm(self, drafter: str, plan: Plan, name: str) -> EngineArm:
        """As `arm`, with a plan of the caller's instead of the spec's."""
        arm = self.arm(drafter, name)
        arm.engine.controller = Fixed(plan)
        return arm

    @property
    def grown_mb(self) -> dict[str, float]:
        """By how much the process grew when an arm's drafter was made and first used, in 10^6 bytes: arms that share a
        drafter share the figure."""
        return {name: round(self._made_mb[key] + self._used_mb.get(key, 0.0), 1) for name, key in self._arms.items()}

    @contextmanager
    def first_use(self, arm: str) -> Iterator[None]:
        """The block in which an arm is used before it is measured; its growth counts if it is the drafter's first."""
        before = machine.resident_mb()
        yield
        if arm in self._arms:
            self._used_mb.setdefault(self._arms[arm], machine.resident_mb() - before)

    def plain(self, name: str = PLAIN) -> EngineArm:
        """Plain decoding through the engine."""
        return self.arm("none", name)

    def bare(self) -> BareArm:
        """The target in a bare loop."""
        return BareArm(self.base)

    def tokens(self, messages: Sequence[Mapping[str, object]]) -> list[int]:
        """A conversation as token ids: through the chat template, or for a base model its texts one after another."""
        words = self.base.words
        if words is None:
            raise SpecError(f"{self.subject.target.spec.name} has random weights and no tokenizer: texts mean nothing")
        if words.has_template:
            return words.chat(messages)
        return words.encode("\n\n".join(str(message["content"]) for message in messages), bos=True)

    def provenance(self, command: str | None = None) -> dict[str, Any]:
        """Machine, versions, command (this process's own if None), and what ran up to now, with the memory bandwidth
        measured now. Date, commit and load are those of now too: a `Run` puts those of its beginning there."""
        subject, spec = self.subject, self.target.spec
        cuda = spec.device.startswith("cuda")
        bandwidth = Bandwidth(subject.weight_bytes, reader())
        if not cuda:
            bandwidth.measure()
        return {
            **machine.provenance(),
            **({"command": command} if command else {}),
            "gpu": torch.cuda.get_device_name(spec.device) if cuda else None,
            "bandwidth_gb_s": None if cuda else bandwidth.to_json(),
            "model": spec.name,
            "fingerprint": spec.fingerprint,
            "runtime": subject.runtime,
            "weights": subject.weights,
            "formats": dict(subject.formats),
            "kv": subject.kv,
            "isa": subject.isa,
            "threads": subject.threads,
            "device": spec.device,
            "drafters": self.fingerprints(),
            "peak_mb": machine.peak_mb(),
            "pid": os.getpid(),
        }

    def fingerprints(self) -> dict[str, str]:
        """Of the drafters that run a model: its fingerprint."""
        found = {}
        for (name, own), drafter in self.drafters.items():
            model = getattr(drafter, "target", None)
            if model is not None:
                found[":".join([name, *(f"{key}={value}" for key, value in own)])] = model.spec.fingerprint
        return found

    @property
    def stack(self) -> str:
        """The stack in one line."""
        s = self.subject
        weights = "+".join(s.formats) or s.weights
        formats = f"{weights} weights, {s.kv} keys and values"
        return f"{self.target.spec.name}, {s.runtime} runtime ({s.isa}), {formats}, {s.threads} threads"
