"""Another engine as an arm: transformers' `generate`, or llama.cpp, on the weights that we run on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any

from forerun.assemble import Foundation
from forerun.core.errors import SpecError, unknown
from forerun.core.params import SamplingParams
from forerun.lab.arms import Arm, Listener, Prompts
from forerun.lab.bench import Bench
from forerun.lab.defaults import BASELINES
from forerun.lab.looping import repeats
from forerun.lab.peers.environment import interpreter
from forerun.lab.peers.files import Reads, for_llama, for_transformers
from forerun.lab.peers.process import Worker
from forerun.lab.sample import Sample, digest

PAUSE_S = 0.05  # around a turn, until threads that spin while they wait have gone to sleep: theirs, and torch's of ours
WORKERS = Path(__file__).parent / "workers"


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer's worker, and what it reads for a bench."""

    module: Path
    reads: Callable[[Bench], Reads]


PEERS = {
    "transformers": Peer(WORKERS / "with_transformers.py", for_transformers),
    "llama.cpp": Peer(WORKERS / "with_llama.py", for_llama),
}
BARE = "bare"


@dataclass(slots=True)
class PeerArm:
    """A peer in its process; `close` ends it."""

    name: str
    worker: Worker
    reads: Reads
    base: Foundation

    def answer(self, prompts: Prompts, params: Mapping[str, Any], listener: Listener | None = None) -> Sample:
        """See `Arm`; greedy only, and one prompt. Seconds are by the peer's own clock; what it rounds otherwise than we
        do may part its text from ours. `listener` hears nothing. SpecError for more, LoadError if the peer fails."""
        most, go_on = _checked(self.name, prompts, params)
        ids, ends = list(prompts[0]), [] if go_on else sorted(self.base.eos_ids)
        limit = min(most, self.base.target.spec.max_len - len(ids))
        sleep(PAUSE_S)
        said = self.worker.do("answer", ids=ids, max_tokens=limit, ends=ends)
        sleep(PAUSE_S)
        tokens, n = said["tokens"], len(said["tokens"])
        seconds, text = said["decode_s"], self.base.words.decode(tokens) if self.base.words else ""
        return Sample(
            answers=1,
            tokens=n - 1,
            decode_s=seconds,
            first_s=said["first_s"],
            cpu_s=said["cpu_s"],
            steps=n - 1,
            rows=n - 1,
            phases={"score": seconds},
            emitted=n,
            passes=n,
            drafted=0,
            accepted=0,
            tried_at=(),
            stood_at=(),
            digest=digest([tokens]),
            texts=(text,),
            repeats=(repeats(tokens),),
        )

    @property
    def facts(self) -> dict[str, Any]:
        """For the bench of a results file: versions, the file and format that it reads."""
        return {**self.worker.facts, "file": self.reads.path.name, "weights": self.reads.weights}

    def __str__(self) -> str:
        version = next(f"{key} {value}" for key, value in self.worker.facts.items())
        named = version if version.startswith(self.name) else f"{self.name} ({version})"
        return f"{named}, {self.reads.weights} weights"

    def close(self) -> None:
        """End the process."""
        self.worker.close()


def _checked(name: str, prompts: Prompts, params: Mapping[str, Any]) -> tuple[int, bool]:
    """The parameters, which say no more than a length and whether to go on behind the end."""
    wanted = SamplingParams(**params)
    plain = SamplingParams(max_tokens=wanted.max_tokens, ignore_eos=wanted.ignore_eos, seed=wanted.seed)
    if len(prompts) != 1 or wanted.max_tokens is None or wanted != plain:
        raise SpecError(f"{name} answers one prompt greedily, with max_tokens and ignore_eos alone")
    return wanted.max_tokens, wanted.ignore_eos


def peer_arm(name: str, bench: Bench, python: Path) -> PeerArm:
    """The peer of that name over the bench's model, loaded in `python`, with as many threads as we use.

    SpecError for weights that it cannot share with us, LoadError if it does not load.
    """
    if name not in PEERS:
        raise unknown("peer", name, PEERS)
    if bench.target.spec.device != "cpu":
        raise SpecError(f"{name} is compared on the CPU, got the device {bench.target.spec.device}")
    reads, threads = PEERS[name].reads(bench), bench.subject.threads
    settings = {
        "file": str(reads.path), "dtype": reads.dtype, "threads": threads, "context": bench.target.spec.max_len
    }  # fmt: skip
    return PeerArm(name, Worker(name, python, PEERS[name].module, settings, threads), reads, bench.base)


def check_baselines(names: Sequence[str], params: Mapping[str, Any]) -> Path | None:
    """SpecError at once, before a model is loaded, for baselines that cannot be had; returns the peers' Python."""
    for name in names:
        if name not in BASELINES:
            raise unknown("baseline", name, BASELINES)
    if names and not SamplingParams(**params).greedy:
        raise SpecError(f"{', '.join(names)} answer greedily: leave out --baseline, or --temperature")
    return interpreter() if any(name in PEERS for name in names) else None


@contextmanager
def baseline_arms(names: Sequence[str], bench: Bench, python: Path | None) -> Iterator[list[Arm]]:
    """Arms for the names, each once; it is said which are started, for that takes a while. They end with the block."""
    with ExitStack() as stack:
        arms: list[Arm] = []
        for name in dict.fromkeys(names):
            if name == BARE:
                arms.append(bench.bare())
                continue
            assert python is not None
            print(f"starting {name}", file=sys.stderr)
            arm = peer_arm(name, bench, python)
            stack.callback(arm.close)
            arms.append(arm)
        yield arms
