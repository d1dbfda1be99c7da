"""Options that several commands share, and what they mean."""

from __future__ import annotations

import argparse
import json
import re
import select
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forerun.core.seq import SeqStats
    from forerun.engine.engine import Engine
    from forerun.engine.results import Choice, Result

ENGINE: Mapping[str, Mapping[str, Any]] = {
    "runtime": {
        "choices": ("auto", "native", "torch", "hf"),
        "help": "native: our own for CPUs; torch: our own for the rest; hf: transformers (auto: the first that runs)",
    },
    "weights": {
        "choices": ("auto", "f32", "bf16", "int8", "q4", "nf4"),
        "help": "format of the weights on the native runtime (auto: the file's own, or int8)",
    },
    "kv": {
        "choices": ("auto", "f32", "bf16", "int8"),
        "help": "format of keys and values on the native runtime (auto: f32 for f32 weights, else bf16)",
    },
    "dtype": {
        "choices": ("auto", "float32", "bfloat16", "float16"),
        "help": "of weights and memory on the other runtimes (auto: float32)",
    },
    "device": {"help": "cpu, cuda, cuda:1, … (cpu)"},
    "verify": {"help": "how drafts are judged (auto: the best lossless rule for each)"},
    "threads": {"type": int, "help": "CPU threads (as many as measure fastest, at most the cores to use)"},
    "max_len": {"type": int, "help": "context in tokens (the model's)"},
    "kv_tokens": {"type": int, "help": "memory for keys and values, in tokens"},
    "costs": {
        "metavar": "FILE",
        "help": "what rows cost here, by forerun lab curve --out; free: nothing (the nearest known machine's)",
    },
}
"""Options of every command that runs a model: fields of `Config`, and how they are read."""
SAMPLING = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
    "min_tokens",
    "max_tokens",
    "ignore_eos",
    "logprobs",
    "prediction",
)


def add_engine(parser: argparse.ArgumentParser, without: Collection[str] = ()) -> None:
    """Which model, drafter and machine; a command that has its own form of an option leaves it out by name."""
    group = parser.add_argument_group("engine")
    if "model" not in without:
        group.add_argument(
            "-m",
            "--model",
            default="smollm2",
            help="smollm2, a folder, a .gguf file, or org/name[:Q4_K_M] of the hub (smollm2)",
        )
    if "drafter" not in without:
        group.add_argument(
            "-d", "--drafter", default="none", metavar="NAME[:KEY=VALUE,…]", help="see `forerun drafters` (none)"
        )
    for name, how in ENGINE.items():
        if name not in without:
            group.add_argument(f"--{name.replace('_', '-')}", **how)


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """How to draw an answer."""
    group = parser.add_argument_group("sampling")
    group.add_argument("--max-tokens", type=int, default=256, help="(256)")
    group.add_argument("--temperature", type=float, help="0 is greedy (0)")
    group.add_argument("--top-p", type=float, help="(1)")
    group.add_argument("--top-k", type=int, help="0 is off (0)")
    group.add_argument("--min-p", type=float, help="(0)")
    group.add_argument("--repetition-penalty", type=float, help="1 is off (1)")
    group.add_argument("--presence-penalty", type=float, help="(0)")
    group.add_argument("--frequency-penalty", type=float, help="(0)")
    group.add_argument("--seed", type=int, help="the same seed gives the same text (random)")
    group.add_argument(
        "--stop", action="append", type=escaped,
        help=r"end before this text; \n, \t, \\ and \u0041 are what they are in Python; may be given again",
    )  # fmt: skip
    group.add_argument("--min-tokens", type=int, help="(0)")
    group.add_argument("--ignore-eos", action="store_true", default=None, help="go on behind the end of text")
    group.add_argument("--prediction", help="text you expect, for -d prediction; @FILE reads it from a file")


def add_conversation(parser: argparse.ArgumentParser) -> None:
    """What a chat template is given beside the user's text."""
    group = parser.add_argument_group("conversation")
    group.add_argument("--system", help="instructions that stand before the user's text")
    group.add_argument("--tools", metavar="FILE", help="tools for the chat template: a JSON list of definitions")
    group.add_argument(
        "--chat-template-kwargs", metavar="JSON", help="""more for the chat template: '{"enable_thinking": false}'"""
    )
    group.add_argument(
        "--parse-special", action=argparse.BooleanOptionalAction,
        help="read names of control tokens in the text as those tokens (with --raw yes, in messages no)",
    )  # fmt: skip


def conversation_from(args: argparse.Namespace) -> dict[str, Any]:
    """Options of `Engine.chat`."""
    from forerun.core.errors import SpecError

    options: dict[str, Any] = {"parse_special": bool(args.parse_special)}
    if args.tools is not None:
        options["tools"] = _json(read_text(args.tools), "--tools")
        if not isinstance(options["tools"], list):
            raise SpecError(f"--tools must be a JSON list of definitions, got {args.tools}")
    if args.chat_template_kwargs is not None:
        options["chat_template_kwargs"] = _json(args.chat_template_kwargs, "--chat-template-kwargs")
        if not isinstance(options["chat_template_kwargs"], dict):
            raise SpecError(f"--chat-template-kwargs must be a JSON object, got {args.chat_template_kwargs}")
    return options


def _json(text: str, option: str) -> object:
    from forerun.core.errors import SpecError

    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{option} is not JSON: {error}") from None


_ESCAPE = re.compile(r"\\(?:[ntr\\]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.?)", re.S)


def escaped(text: str) -> str:
    """A text in which a backslash means what it means in Python; what it does not know is refused."""

    def one(match: re.Match[str]) -> str:
        written = match[0]
        plain = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\\\": "\\"}
        code = int(written[2:], 16) if written[1:2] in ("x", "u", "U") and len(written) > 3 else -1
        if written in plain:
            return plain[written]
        if code < 0 or code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise argparse.ArgumentTypeError(
                rf"{written} is no character (allowed: \n \t \r \\ \x41 \u0041 \U00000041); write \\ for a backslash"
            )
        return chr(code)

    return _ESCAPE.sub(one, text)


WAIT_S = 10.0
"""How long standard input is waited for beside a prompt, which may be all there is."""


def piped() -> str:
    """What was piped in beside a prompt; empty if nothing is there, or nothing comes in time."""
    if sys.stdin.isatty():
        return ""
    try:
        handle = sys.stdin.fileno()
    except OSError:  # a stand-in for standard input
        with suppress(OSError):
            return sys.stdin.read()
        return ""
    with suppress(OSError, ValueError):  # what cannot be waited for is read
        if not select.select([handle], [], [], WAIT_S)[0]:
            print(
                f"warning: nothing came on standard input in {WAIT_S:g} s: answered without it (< /dev/null says so)",
                file=sys.stderr,
            )
            return ""
    return read_text("-")


def engine_from(args: argparse.Namespace, **changes: object) -> Engine:
    """Load the engine that the options describe; `changes` are further options."""
    from forerun.assemble import load

    options = {name: getattr(args, name) for name in ENGINE if getattr(args, name, None) is not None}
    return load(args.model, args.drafter, **{**options, **changes})


def params_from(args: argparse.Namespace) -> dict[str, Any]:
    """Sampling parameters by name, checked before a model is loaded for them."""
    from forerun.core.params import SamplingParams

    values = {name: getattr(args, name) for name in SAMPLING if getattr(args, name, None) is not None}
    if str(values.get("prediction", "")).startswith("@"):
        values["prediction"] = read_text(values["prediction"][1:])
    SamplingParams(**values)
    return values


def read_text(path: str) -> str:
    """A text file's contents; `-` is standard input. SpecError if it is not text."""
    from forerun.core.errors import SpecError

    try:
        if path == "-":
            return sys.stdin.read()
        with open(path, encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise SpecError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None


def warn_if_lossy(engine: Engine) -> None:
    """Say it out loud when the text may not be the target's."""
    if not engine.parts.verify.lossless:
        print(
            f"warning: the verifier {engine.parts.verify.name!r} is lossy: this is not quite what the model would say",
            file=sys.stderr,
        )


def warn_if_unread(args: argparse.Namespace) -> None:
    """Say it where a prediction was given to a drafter that reads none."""
    from forerun.core.options import Spec

    spec = Spec.parse(args.drafter)
    if args.prediction is not None and "prediction" not in (spec.name, *str(spec.values.get("of", "")).split("+")):
        print(f"warning: --prediction is of no use to -d {args.drafter}: only `prediction` reads it", file=sys.stderr)


def stats_json(stats: SeqStats) -> dict[str, object]:
    """Statistics of one answer for machines; rates are null where nothing was drafted."""
    return {
        "target_passes": stats.target_passes,
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "acceptance": stats.acceptance,
        "drafted_at": stats.drafted_at,
        "accepted_at": stats.accepted_at,
        "tau": stats.tau,
        "tokens_per_s": stats.tokens_per_s,
        "prompt_tokens": stats.prefilled,
        "prompt_tokens_per_s": stats.prompt_tokens_per_s,
        "ttft_s": stats.ttft_s,
        "decode_tokens_per_s": stats.decode_tokens_per_s,
        "phases": stats.seconds,
        "preempted": stats.preempted,
        "reused": stats.reused,
    }


def result_json(result: Result) -> dict[str, object]:
    """Text, ids, finish reason, usage and statistics, as JSON values."""
    return {
        "text": result.text,
        "token_ids": result.token_ids,
        "finish_reason": result.finish_reason,
        "usage": {
            "prompt_tokens": result.usage.prompt_tokens,
            "completion_tokens": result.usage.completion_tokens,
            "total_tokens": result.usage.total_tokens,
        },
        "stats": stats_json(result.stats),
        **({"choices": [_choice(choice) for choice in result.choices]} if len(result.choices) > 1 else {}),
        **_logprobs(result),
    }


def _choice(choice: Choice) -> dict[str, object]:
    return {
        "index": choice.index,
        "text": choice.text,
        "token_ids": choice.token_ids,
        "finish_reason": choice.finish_reason,
        **_logprobs(choice),
    }


def _logprobs(answer: Result | Choice) -> dict[str, object]:
    entries = [
        {"id": token.id, "logprob": token.logprobs.token, "top": [list(pair) for pair in token.logprobs.top]}
        for token in answer.tokens
        if token.logprobs
    ]
    return {"logprobs": entries} if entries else {}


def stats_line(stats: SeqStats) -> str:
    """Statistics of one answer for people."""
    tau = f"{stats.tau:.2f}" if stats.tau else "-"
    rate = f"{stats.acceptance:.0%}" if stats.acceptance is not None else "-"
    read = f" at {stats.prompt_tokens_per_s:.1f} tokens/s" if stats.prompt_tokens_per_s else ""
    first = f"first token after {stats.ttft_s:.2f} s" if stats.ttft_s is not None else "no token"
    speed = f"{stats.decode_tokens_per_s:.1f} tokens/s" if stats.decode_tokens_per_s else "no more"
    phases = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in stats.seconds.items())
    return (
        f"{stats.emitted} tokens in {stats.target_passes} target passes (tau {tau}), "
        f"{stats.accepted} of {stats.drafted} drafted tokens stand ({rate}); "
        f"{stats.prefilled} prompt tokens read{read}, {first}, then {speed}; {phases}"
    )
