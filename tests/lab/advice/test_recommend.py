"""What is recommended when, and that the command says all that was measured."""

import shlex

import pytest

from forerun.assemble import Config
from forerun.cli.common import params_from
from forerun.cli.main import parser
from forerun.lab.advice import elsewhere
from forerun.lab.advice.recommend import Tried, command, recommend
from forerun.lab.advice.show import _said

CONFIG, PARAMS = Config("smollm2", reuse=False), {"max_tokens": 96}


def arm(total, verdict, median=None, whole=None, prompts=9):
    def interval(value):
        return {"value": value, "low": value - 0.1, "high": value + 0.1, "of": prompts}

    return {
        "prompts": prompts,
        "speedup": interval(median or total),
        "speedup_total": interval(total),
        "speedup_answer": whole and interval(whole),
        "verdict": "faster",  # of the median: nothing may be decided by it
        "verdict_total": verdict,
    }


PLAIN = arm(1.0, "no difference")


BOTH = Tried(("ngram", "suffix"))


def advised(basis=BOTH, **arms):
    return recommend({"plain": PLAIN, **arms}, CONFIG, PARAMS, basis)


def test_of_the_faster_ones_the_largest_total_is_taken():
    assert advised(ngram=arm(1.5, "faster", whole=1.4), suffix=arm(1.4, "faster"))["spec"] == "ngram"
    said = advised(ngram=arm(1.3, "faster", median=2.0), suffix=arm(1.4, "faster", median=1.1, whole=1.35))
    assert (said["speculate"], said["spec"], said["speedup_total"]["value"]) == (True, "suffix", 1.4)
    assert said["speedup_answer"]["value"] == 1.35
    assert said["best_not_taken"] is None


def test_an_arm_that_is_faster_is_not_hidden_by_one_that_only_seems_so():
    said = advised(suffix=arm(1.6, "no difference"), ngram=arm(1.2, "faster"))
    assert (said["spec"], said["speedup_total"]["value"]) == ("ngram", 1.2)


def test_what_is_not_faster_beyond_the_noise_is_not_recommended():
    said = advised(ngram=arm(1.5, "no difference"), suffix=arm(0.9, "slower"))
    assert (said["speculate"], said["spec"], said["best_not_taken"]) == (False, "none", "ngram")
    assert "is not faster beyond the noise" in said["why"]
    assert (said["speedup"], said["speedup_total"], said["speedup_answer"]) == (None, None, None)
    assert "-d none" in said["command"]
    assert advised()["why"].startswith("no candidate")


def test_a_faster_median_with_a_slower_total_is_not_recommended():
    said = advised(ngram=arm(0.97, "no difference", median=1.4))
    assert not said["speculate"]
    assert not advised(ngram=arm(0.99, "faster"))["speculate"]


def test_whole_answers_must_not_take_longer():
    said = advised(skip=arm(1.3, "faster", whole=0.8), ngram=arm(1.1, "faster", whole=1.05))
    assert said["spec"] == "ngram"
    said = advised(skip=arm(1.3, "faster", whole=0.8))
    assert (said["speculate"], said["best_not_taken"]) == (False, "skip")
    assert "whole answers take longer" in said["why"]


def test_too_few_prompts_are_said_to_be():
    said = advised(ngram=arm(3.0, "too few prompts", prompts=3))
    assert said["speculate"] is None
    assert said["why"].startswith("too few prompts to tell: 3 were timed and 6 are needed")
    untimed = {**arm(1.0, None), "speedup": None, "speedup_total": None, "prompts": 0}
    assert advised(ngram=untimed)["why"] == "answers were too short to time"


FLOOR = {"value": 1.0, "low": 0.9, "high": 1.1, "of": 9, "calm": True}
QUIET, NOISY = FLOOR, {**FLOOR, "value": 1.3, "calm": False}


def test_244_what_was_not_tried_is_said_and_nothing_is_concluded_of_it():
    basis = Tried(("ngram", "suffix"), ("skip", "eagle3"), QUIET)
    said = advised(basis, ngram=arm(1.0, "no difference"))
    assert (said["speculate"], said["tried"], said["not_tried"]) == (False, ["ngram", "suffix"], ["skip", "eagle3"])
    (sentence, _) = _said("code", said)
    assert sentence.startswith("code: do not speculate with what was tried (ngram, suffix): ")
    assert "Not tried: skip, eagle3; more --seconds try them." in sentence
    (sentence, *_) = _said("code", advised(basis, ngram=arm(1.5, "faster")))
    assert "speculate with ngram" in sentence
    assert "Not tried: skip, eagle3" in sentence
    (sentence, _) = _said("code", advised(Tried(("ngram",), (), QUIET)))
    assert "Not tried" not in sentence


@pytest.mark.parametrize(
    ("basis", "arms", "why"),
    [
        (
            Tried(("ngram",), (), NOISY),
            {"ngram": arm(1.0, "no difference")},
            "was not quiet, plain decoding took 1.300",
        ),
        (Tried(("ngram",), (), NOISY), {}, "was not quiet"),
        (Tried(("ngram",), ("skip",), NOISY), {"ngram": arm(0.9, "slower")}, "was not quiet"),
        (Tried(("ngram",), (), QUIET), {"ngram": arm(1.5, "too few prompts")}, "too few prompts to tell"),
        (Tried((), ("ngram", "skip"), QUIET), {}, "no drafter was tried"),
    ],
)
def test_244_too_little_is_no_conclusion(basis, arms, why):
    said = advised(basis, **arms)
    assert (said["speculate"], said["spec"]) == (None, "none")
    (sentence, _) = _said("code", said)
    assert sentence.startswith("code: whether to speculate: no conclusion, ")
    assert why in sentence
    assert "do not speculate" not in sentence


def test_244_what_is_faster_beyond_the_noise_is_so_on_a_noisy_machine_too():
    assert advised(Tried(("ngram",), (), NOISY), ngram=arm(2.0, "faster"))["speculate"] is True


def looping(total, rest, verdict="faster"):
    """An arm of which 4 of 9 answers loop; `rest` is its total without them, None where none is left."""
    without = {
        "prompts": 5 if rest else 0,
        "speedup_total": rest and {"value": rest, "low": rest, "high": rest, "of": 5},
    }
    return {**arm(total, verdict), "looping": {"answers": 4, "of": 9, "repeated": 0.46, "without": without}}


def test_211_a_gain_of_looping_answers_alone_is_not_recommended():
    said = advised(ngram=looping(4.5, 0.98))
    assert (said["speculate"], said["spec"]) == (False, "none")
    assert (
        said["why"]
        == "ngram gains where the model repeats itself alone: 4 of 9 answers loop, over the 5 others it is 0.98x"
    )
    assert advised(ngram=looping(4.5, None))["why"].endswith("4 of 9 answers loop, no other was timed")
    assert advised(ngram=looping(4.5, 1.2))["spec"] == "ngram"
    assert advised(ngram={**arm(1.5, "faster"), "looping": {"answers": 0, "of": 9, "without": None}})["spec"] == "ngram"


def read(text):
    """A command as the program reads it."""
    words = shlex.split(text)
    assert words[0] == "forerun"
    return parser().parse_args(words[1:])


def test_the_command_has_every_option_that_is_not_the_default():
    config = Config(
        "my models/a'b.gguf", verify="match", runtime="torch", dtype="bfloat16", device="cuda:1", threads=3,
        max_len=512, kv_tokens=4096, reuse=False,
    )  # fmt: skip
    params = {"max_tokens": 40, "ignore_eos": True, "temperature": 0.7, "top_p": 0.9, "seed": 5}
    args = read(command(config, params, "suffix:width=3,nodes=15"))
    assert (args.command, args.model, args.drafter) == ("generate", "my models/a'b.gguf", "suffix:width=3,nodes=15")
    given = {name: getattr(args, name) for name in ("verify", "runtime", "dtype", "device", "threads", "max_len")}
    assert given == {name: getattr(config, name) for name in given}
    assert args.kv_tokens == 4096
    assert params_from(args) == params


def test_the_command_says_no_more_than_that():
    text = command(CONFIG, PARAMS, "ngram")
    assert text == "forerun generate -m smollm2 -d ngram --max-tokens 96 '…'"
    args = read(command(Config("smollm2", weights="int8", kv="bf16"), PARAMS, "none"))
    assert (args.weights, args.kv, args.verify, args.threads) == ("int8", "bf16", None, None)


@pytest.mark.parametrize(
    ("spec", "vllm", "llama"),
    [
        ("none", "no --spec", "no --spec"),
        ("ngram:depth=8,min=3", '"num_speculative_tokens": 8', "ngram-simple --spec-ngram-size-n 3 --draft-max 8"),
        ("ngram:depth=2,min=3,max=12", '"prompt_lookup_min": 3, "prompt_lookup_max": 12', "--draft-max 2"),
        ("suffix:depth=6", '"method": "suffix"', "--draft-max 6"),
        ("model:path=small.gguf,depth=4", '"model": "small.gguf"', "-md small.gguf --draft-max 4"),
        ("skip:layers=3", "no drafter like 'skip'", "no drafter like 'skip'"),
        (
            "eagle3:depth=3,width=3,nodes=7",
            '"method": "eagle3", "model": "FOLDER", "num_speculative_tokens": 3',
            "gguf",
        ),
        ("p-eagle:depth=5", '"parallel_drafting": true', "none"),
        ("medusa", "no drafter like 'medusa'", "none"),
        ("mtp", "no drafter like 'mtp'", "none"),
    ],
)
def test_other_engines_options(spec, vllm, llama):
    assert vllm in elsewhere.vllm(spec)
    assert llama in elsewhere.llama_cpp(spec)
