"""What do weight and KV formats do to speculation? Acceptance, speed-up and the best draft length in each.

One format is loaded at a time, all of them in order and then all again in reverse, so formats are never timed against
one another: a speed-up is over plain decoding in the same format. Says whether the best draft length depends on it.

examples:
  forerun lab weights
  forerun lab weights --weights bf16,int8,q4 --kv bf16,int8 -d ngram -d skip:layers=20 --depths 1,2,4,8
  forerun lab weights --weights f32,nf4 --workload code --out measured/weights.json"""

from __future__ import annotations

import argparse

from forerun.cli.lab import common

SWEEP = True


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    from forerun.lab.defaults import DEPTHS, DRAFTERS, FORMATS, SWEEP_PROMPTS, SWEEP_TOKENS, SWEEP_WORKLOADS

    formats, depths = ",".join(FORMATS), ",".join(map(str, DEPTHS))
    parser.add_argument(
        "--weights", default=formats, metavar="FORMAT,…", help=f"of auto, f32, bf16, int8, q4 and nf4 ({formats})"
    )
    parser.add_argument("--kv", default="auto", metavar="FORMAT,…", help="of auto, f32, bf16 and int8 (auto)")
    parser.add_argument("--depths", default=depths, metavar="N,…", help=f"draft lengths ({depths})")
    common.add_drafters(parser, DRAFTERS)
    common.add_data(parser, SWEEP_WORKLOADS, SWEEP_PROMPTS, SWEEP_TOKENS)
    common.add_engine(parser, without=("weights", "kv", "dtype", "device"))
    common.add_output(parser, log=True)


def run(args: argparse.Namespace) -> int:
    """Measure and tell."""
    from forerun.assemble import Config
    from forerun.core.options import build
    from forerun.lab.domains import data
    from forerun.lab.run import check_out
    from forerun.lab.sweeps.passes import Loader, provenance
    from forerun.lab.sweeps.weights import answers, deepened, formats, run_weights

    drafters, workloads, asked = common.chosen_drafters(args), common.chosen_workloads(args), common.asked(args)
    depths = sorted(set(common.numbers("--depths", args.depths)))
    for spec in drafters:
        deepened(spec, depths)
    given = {k: v for k, v in common.engine_options(args).items() if k not in ("weights", "kv")}
    config = build(Config, {"model": args.model, **given}, "engine")
    configs = formats(config, common.words("--weights", args.weights), common.words("--kv", args.kv))
    check_out(args.out, args.record)
    loader = Loader()
    prints = loader.open(configs[0]).target.spec.fingerprint
    run = common.begin(args, "weights", workloads=workloads, drafters=drafters, fingerprint=prints)
    with common.kept(run), common.step_log(args) as log:
        figures, samples = run_weights(loader, run, configs, drafters, depths, workloads, asked, log)
        bench = provenance(loader, configs[0], weights=args.weights, kv=args.kv, formats=None)
        said = answers(configs, figures, drafters, data(workloads, asked))
        return common.deliver(args, run, bench, said, figures, samples)
