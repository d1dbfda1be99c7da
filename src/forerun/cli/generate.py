"""Answer one prompt.

examples:
  forerun generate -m smollm2 -d ngram "Why is the sky blue?"
  forerun generate -d ngram:depth=12 --temperature 0.8 --seed 7 --json "Tell me a story."
  forerun generate --system "Answer in one word." "The capital of France?"
  cat prompt.txt | forerun generate --raw
  cat letter.txt | forerun generate "Summarise this letter."
  forerun generate "The capital of France?" --prefill "It is"
"""

from __future__ import annotations

import argparse
import sys

from forerun.cli.common import (
    add_conversation,
    add_engine,
    add_sampling,
    conversation_from,
    engine_from,
    escaped,
    params_from,
    piped,
    read_text,
    result_json,
    stats_line,
    warn_if_lossy,
    warn_if_unread,
)
from forerun.cli.tell import tell


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "prompt", nargs="?",
        help="the user's text; what is piped in stands behind it, after a blank line; alone, or for -, it is the text",
    )  # fmt: skip
    parser.add_argument("--raw", action="store_true", help="continue the text itself, without the chat template")
    parser.add_argument("--stats", action="store_true", help="print what speculation did, on stderr")
    parser.add_argument(
        "--show", action="store_true", help="on a terminal, colour tokens that were drafted and accepted"
    )
    parser.add_argument("--n", type=int, help="independent answers, with --json (1)")
    parser.add_argument("--logprobs", type=int, metavar="K", help="log-probabilities with K alternatives, with --json")
    add_conversation(parser)
    parser.add_argument("--prefill", type=escaped, help="how the answer begins; escapes as in --stop")
    add_engine(parser)
    add_sampling(parser)


def _with_piped(prompt: str) -> str:
    """The prompt, and what was piped in beside it."""
    more = piped()
    return f"{prompt}\n\n{more}" if more.strip() else prompt


def run(args: argparse.Namespace) -> int:
    """Stream the answer, or print it as JSON."""
    from forerun.core.errors import SpecError

    if args.prompt is None and sys.stdin.isatty():
        raise SpecError("there is no prompt: give it as an argument, or on standard input")
    text = read_text("-") if args.prompt in ("-", None) else _with_piped(args.prompt)
    if not text and not args.raw:
        raise SpecError("the prompt is empty: give the model something to answer")
    if args.n not in (None, 1) and not args.json:
        raise SpecError("several answers (--n) are printed with --json only")
    if args.logprobs is not None and not args.json:
        raise SpecError("log-probabilities (--logprobs) are printed with --json only")
    spoken = ("system", "tools", "chat_template_kwargs", "prefill")
    told = [f"--{name.replace('_', '-')}" for name in spoken if getattr(args, name) is not None]
    if told and args.raw:
        raise SpecError(f"{told[0]} speaks through the chat template, which --raw leaves out: put it into the text")
    params = params_from(args) | ({"n": args.n} if args.n is not None else {})
    options = conversation_from(args)
    with engine_from(args) as engine:
        warn_if_lossy(engine)
        warn_if_unread(args)
        if args.raw or not (told or engine.has_template):
            prompt = engine.encode(text, parse_special=args.parse_special is not False)
        else:
            turns = (("system", args.system), ("user", text), ("assistant", args.prefill))
            messages = [{"role": role, "content": said} for role, said in turns if role == "user" or said]
            prompt = engine.chat(messages, **options)
        if args.json:
            result = engine.generate(prompt, **params)
            tell(args, result.text, result_json(result))
        else:
            from forerun.cli.show import stream

            result = stream(engine, prompt, params, colour=args.show and sys.stdout.isatty())
        if args.stats:
            print(stats_line(result.stats), file=sys.stderr)
    return 0
