"""Ours: an engine without a drafter, and its target alone.

Arguments: model file, threads, prompt as JSON ids, options of forerun.load as JSON.
"""

import json
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

from turn import CACHED, CONTEXT, PROMPT, REPEATS, ROWS, TOKENS, serve, speak

say = speak()

import forerun  # noqa: E402
from forerun.core.draft import Tree  # noqa: E402
from forerun.core.params import SamplingParams  # noqa: E402
from forerun.core.seq import Seq, Token  # noqa: E402
from forerun.core.work import Item  # noqa: E402


def main() -> None:
    path, threads, prompt, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]), json.loads(sys.argv[4])
    engine = forerun.load(path, "none", threads=threads, reuse=False, kv_tokens=2048, **options)
    target = engine.parts.target

    def opened(tokens: list[int], held: int) -> Seq:
        """A sequence whose first `held` tokens are in memory."""
        seq = Seq(0, tokens, SamplingParams(), target.spec.max_len)
        target.begin(seq)
        target.reserve(seq, len(tokens) + TOKENS)
        if held:
            target.score([Item(seq, 0, held)])
        return seq

    def decode() -> dict[str, Any]:
        result = engine.generate(prompt[:CONTEXT], max_tokens=TOKENS, ignore_eos=True)
        return {"ms": result.stats.decode_ms_per_token, "text": result.text, "loop_ms": loop()}

    def loop() -> float:
        """Milliseconds per token of the target alone: score, first best, commit."""
        seq = opened(prompt[:CONTEXT], CONTEXT - 1)
        start = perf_counter()
        for _ in range(TOKENS):
            target.reserve(seq, 1)
            rows = target.score([Item(seq, len(seq) - 1, len(seq) - 1, Tree.root(seq.last))])
            best = rows.argmax(0, 0)
            target.commit([seq], [()])
            seq.extend([Token(best)])
        ms = 1e3 * (perf_counter() - start) / TOKENS
        target.release(seq)
        return ms

    def rows8() -> dict[str, Any]:
        """Eight rows with eight rows of logits, as a verification; and as a prompt's end, with one row of them."""
        seq = opened(prompt[: CACHED + 1], CACHED)
        tree = Tree.chain(seq.last, prompt[CACHED + 1 : CACHED + ROWS])
        guessed = repeated(seq, [Item(seq, CACHED, CACHED, tree)])
        target.release(seq)
        seq = opened(prompt[: CACHED + ROWS], CACHED)
        read = repeated(seq, [Item(seq, CACHED, CACHED + ROWS - 1, Tree.root(seq.last))])
        target.release(seq)
        return {"ms": guessed, "one_row_ms": read}

    def repeated(seq: Seq, work: list[Item]) -> float:
        """Median milliseconds of a forward that is taken back each time."""
        times = []
        for _ in range(REPEATS):
            times.append(timed(lambda: target.score(work)))
            target.truncate(seq, CACHED)
            target.reserve(seq, ROWS)
        return median(times)

    def prefill512() -> dict[str, Any]:
        seq = opened(prompt[:PROMPT], 0)
        ms = timed(lambda: target.score([Item(seq, 0, PROMPT - 1, Tree.root(seq.last))]))
        target.release(seq)
        return {"ms": ms}

    serve(say, {"decode": decode, "rows8": rows8, "prefill512": prefill512}, facts(engine))


def timed(run: Callable[[], object]) -> float:
    start = perf_counter()
    run()
    return 1e3 * (perf_counter() - start)


def facts(engine: forerun.Engine) -> dict[str, Any]:
    from forerun.lab.subject import describe

    subject = describe(engine.parts.target)
    names = ("runtime", "weights", "formats", "kv", "isa", "threads")
    return {"forerun": forerun.__version__, **{name: getattr(subject, name) for name in names}}


if __name__ == "__main__":
    main()
