"""Counters of four servers: differences, restarts, models told apart."""

import pytest

from forerun.lab.endpoint.metrics import Counts, busy, difference, parse

VLLM = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts{total}{{engine="0",model_name="A"}} {drafts}
vllm:spec_decode_num_drafts_created{{engine="0",model_name="A"}} 1.78e+09
vllm:spec_decode_num_draft_tokens{total}{{engine="0",model_name="A"}} {drafted}
vllm:spec_decode_num_accepted_tokens{total}{{engine="0",model_name="A"}} {accepted}
vllm:spec_decode_num_accepted_tokens_per_pos{total}{{engine="0",model_name="A",position="0"}} {first}
vllm:spec_decode_num_accepted_tokens_per_pos{total}{{engine="0",model_name="A",position="1"}} {second}
vllm:num_requests_running{{engine="0",model_name="A"}} {running}
vllm:num_requests_waiting{{engine="0",model_name="A"}} 1.0
"""


def vllm(*, total="_total", drafts=0, drafted=0, accepted=0, first=0, second=0, running=0):
    return parse(VLLM.format(total=total, drafts=drafts, drafted=drafted, accepted=accepted, first=first,
                             second=second, running=running))  # fmt: skip


@pytest.mark.parametrize("total", ["_total", ""])
def test_vllm(total):
    before = vllm(total=total, drafts=5, drafted=10, accepted=7, first=5, second=2)
    after = vllm(total=total, drafts=9, drafted=18, accepted=12, first=8, second=4)
    assert difference(before, after, "A") == Counts("vllm", 4, 8, 5, (3, 2))
    assert busy(vllm(running=2)) == 3


def test_llama_cpp():
    text = (
        "llamacpp:spec_decode_num_drafts_total {d}\nllamacpp:spec_decode_num_draft_tokens_total {t}\n"
        "llamacpp:spec_decode_num_accepted_tokens_total {a}\nllamacpp:requests_processing 0\n"
        'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{{position="0"}} {a}\n'
    )
    before, after = parse(text.format(d=1, t=3, a=2)), parse(text.format(d=4, t=12, a=5))
    assert difference(before, after, "whatever") == Counts("llama.cpp", 3, 9, 3, (3,))
    assert busy(after) == 0


def test_sglang_counts_passes_and_its_gauges_are_not_taken_for_this_run():
    text = "sglang:spec_verify_calls_total {c}\nsglang:generation_tokens_total {g}\nsglang:spec_accept_length 9\n"
    found = difference(parse(text.format(c=10, g=30)), parse(text.format(c=20, g=55)), "A")
    assert found == Counts("sglang", passes=10, generated=25)
    assert difference({}, parse("sglang:spec_accept_rate 0.9\n"), "A") is None


@pytest.mark.parametrize("name", ["num_draft_tokens_total", "num_draft_tokens", "drafted_tokens_total"])
def test_tensorrt_llm(name):
    other = "num_accepted_tokens" if name.startswith("num") else "accepted_tokens_total"
    text = "trtllm_spec_decode_{name} {d}\ntrtllm_spec_decode_{other} {a}\n"
    before, after = (parse(text.format(name=name, other=other, d=d, a=a)) for d, a in ((8, 3), (20, 9)))
    assert difference(before, after, "A") == Counts("tensorrt-llm", drafted=12, accepted=6)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (vllm(drafts=9, drafted=18, accepted=12), vllm(drafts=2, drafted=4, accepted=1)),
        (vllm(drafts=9, drafted=18, accepted=12), parse("vllm:spec_decode_num_drafts_total 1\n")),
        (
            {**vllm(drafts=1), **parse("process_start_time_seconds 100\n")},
            {**vllm(drafts=7), **parse("process_start_time_seconds 160\n")},
        ),
    ],
)
def test_a_restart_is_noticed_and_nothing_is_said(before, after):
    assert difference(before, after, "A") == Counts("vllm", restarted=True)


def test_counters_that_appear_only_when_something_happened_began_at_zero():
    assert difference(parse("vllm:num_requests_running 0\n"), vllm(drafts=3, drafted=6, accepted=2), "A").drafted == 6


def test_models_are_told_apart_by_their_label():
    text = 'vllm:spec_decode_num_draft_tokens_total{{model_name="A"}} {a}\n' \
           'vllm:spec_decode_num_draft_tokens_total{{model_name="B \\"x\\""}} {b}\n'  # fmt: skip
    before, after = parse(text.format(a=0, b=0)), parse(text.format(a=3, b=40))
    assert difference(before, after, "A").drafted == 3
    assert difference(before, after, 'B "x"').drafted == 40
    assert difference(before, after, "C") is None  # of neither


def test_what_is_no_number_or_no_line_is_left_out():
    scrape = parse('a 1\nb NaN\nc +Inf\nd {x="1"} 2 1700000000\nnot a metric line\n\n# c 3\ne x\n')
    assert {name: sum(series.values()) for name, series in scrape.items()} == {"a": 1, "d": 2}
    assert busy(scrape) is None
    assert difference({}, scrape, "A") is None
