"""llama.cpp through xllamacpp: a server without speculation, and its own timings.

xllamacpp's wheel is an AVX2 build; a native build of llama.cpp may be faster.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from time import perf_counter, process_time
from typing import Any

# It runs in the peers' own environment, which has this package; ours, where types are checked, must not.
import xllamacpp  # type: ignore[import-not-found]

REPEATS = 5  # forwards of a few milliseconds within one turn
ORDINARY = 300  # ids of ordinary tokens from here on
TICK_S = 0.02


class Meter:
    """Processor time of this process, noted now and then: the server does not say when its prompt was read until the
    answer is whole."""

    def __enter__(self) -> Meter:
        self._notes = [(perf_counter(), process_time())]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._note, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _note(self) -> None:
        while not self._over.wait(TICK_S):
            self._notes.append((perf_counter(), process_time()))
        self._notes.append((perf_counter(), process_time()))

    def last(self, seconds: float) -> float:
        """Processor seconds over the last `seconds` of what was watched, straight between notes."""
        end, total = self._notes[-1]
        for (t0, c0), (t1, c1) in pairwise(self._notes):
            if t1 >= end - seconds:
                share = max(0.0, end - seconds - t0) / (t1 - t0) if t1 > t0 else 0.0
                return total - (c0 + share * (c1 - c0))
        return 0.0


def server(settings: dict[str, Any]) -> Any:
    """One slot over the file, on the CPU."""
    params = xllamacpp.CommonParams()
    params.model.path = settings["file"]
    params.n_ctx = settings["context"]
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.n_gpu_layers = 0
    params.no_mmproj = True
    params.verbosity = 0
    return xllamacpp.Server(params)


def opened(settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Facts of the build, and the tasks."""
    llama = server(settings)

    def ask(ids: Sequence[int], tokens: int, *, go_on: bool = True, cached: int = 0) -> dict[str, Any]:
        """The whole reply to a greedy request; an error if other work was timed than was meant."""
        request = {
            "prompt": list(ids), "n_predict": tokens, "temperature": 0, "samplers": ["top_k"], "top_k": 1,
            "ignore_eos": go_on, "cache_prompt": cached > 0, "stream": False, "return_tokens": True, "verbose": True,
        }  # fmt: skip
        said = llama.handle_completions(request)
        reply: dict[str, Any] = json.loads(said) if isinstance(said, str | bytes) else said
        timings = reply.get("timings")
        if not timings or timings["cache_n"] != cached or timings["prompt_n"] != len(ids) - cached:
            raise RuntimeError(f"not the request that was meant to be timed: {str(reply)[:500]}")
        return reply

    def answer(ids: Sequence[int], max_tokens: int, ends: Sequence[int]) -> dict[str, Any]:
        """Which tokens end an answer llama.cpp knows itself; without `ends` it never draws one of them."""
        with Meter() as meter:
            reply = ask(ids, max_tokens, go_on=not ends)
        tokens, timings = reply["__verbose"]["tokens"], reply["timings"]
        if len(tokens) != timings["predicted_n"]:
            raise RuntimeError(f"{timings['predicted_n']} tokens were timed, {len(tokens)} were said")
        decode_s = 1e-3 * timings["predicted_ms"]  # from the first token on
        return {
            "tokens": tokens,
            "first_s": 1e-3 * timings["prompt_ms"],
            "decode_s": decode_s,
            "cpu_s": meter.last(decode_s),
        }

    def read(ids: Sequence[int]) -> dict[str, Any]:
        return {"ms": ask(ids, 1)["timings"]["prompt_ms"]}

    def rows(ids: Sequence[int], held: int) -> dict[str, Any]:
        """All behind the first `held`, which are cached; the next one is another each time, so that none more is."""
        ask([*ids[:held], ORDINARY - 1, *ids[held + 1 :]], 1)
        times = []
        for turn in range(REPEATS):
            fed = [*ids[:held], ORDINARY + turn, *ids[held + 1 :]]
            times.append(ask(fed, 1, cached=held)["timings"]["prompt_ms"])
        return {"ms": median(times)}

    facts = {"xllamacpp": xllamacpp.__version__, "build": xllamacpp.get_system_info().strip()}
    return facts, {"answer": answer, "read": read, "rows": rows}
