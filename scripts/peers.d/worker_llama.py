"""llama.cpp through xllamacpp: its own timings, of a server without speculation.

Arguments: model file, threads, prompt as JSON ids. xllamacpp's wheel is an AVX2 build.
"""

import json
import sys
from statistics import median
from typing import Any

from turn import CACHED, CONTEXT, PROMPT, REPEATS, ROWS, TOKENS, serve, speak

say = speak()

import xllamacpp  # noqa: E402  # it prints

FIRST = 300  # ids of ordinary tokens from here on


def server(path: str, threads: int) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = 1024
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_gpu_layers = 0
    params.no_mmproj = True
    params.verbosity = 0
    return xllamacpp.Server(params)


def main() -> None:
    path, threads, prompt = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    llama = server(path, threads)

    def ask(ids: list[int], tokens: int, cached: int = 0) -> dict[str, Any]:
        request = {
            "prompt": ids, "n_predict": tokens, "temperature": 0, "samplers": ["top_k"], "top_k": 1, "ignore_eos": True,
            "cache_prompt": cached > 0, "stream": False,
        }  # fmt: skip
        reply = llama.handle_completions(request)
        reply = json.loads(reply) if isinstance(reply, str | bytes) else reply
        timings = reply.get("timings")
        if not timings or timings["cache_n"] != cached or timings["prompt_n"] != len(ids) - cached:
            raise RuntimeError(f"not the request that was meant to be timed: {str(reply)[:500]}")
        return reply

    def decode() -> dict[str, Any]:
        reply = ask(prompt[:CONTEXT], TOKENS)
        return {"ms": reply["timings"]["predicted_per_token_ms"], "text": reply["choices"][0]["text"]}

    def rows8() -> dict[str, Any]:
        """On the cached prompt, rows that begin with another token each time, so that none of them is cached."""
        times = []
        for turn in range(REPEATS + 1):
            ids = [*prompt[:CACHED], FIRST + turn, *prompt[CACHED + 1 : CACHED + ROWS]]
            if turn == 0:
                llama.handle_completions({"prompt": ids, "n_predict": 1, "cache_prompt": True})
            else:
                times.append(ask(ids, 1, CACHED)["timings"]["prompt_ms"])
        return {"ms": median(times)}

    def prefill512() -> dict[str, Any]:
        return {"ms": ask(prompt[:PROMPT], 1)["timings"]["prompt_ms"]}

    facts = {"xllamacpp": xllamacpp.__version__, "build": xllamacpp.get_system_info().strip()}
    serve(say, {"decode": decode, "rows8": rows8, "prefill512": prefill512}, facts)


if __name__ == "__main__":
    main()
