"""One chunk of a streamed answer, in every dialect."""

import json

import pytest

from forerun.lab.endpoint.chunk import Drafted, Usage, read
from forerun.lab.endpoint.faults import Fault
from forerun.lab.endpoint.sse import Event


def chunk(**value):
    return read(Event(json.dumps(value)))


def test_chat_completions_and_reasoning_deltas_are_what_the_model_made():
    assert chunk(choices=[{"delta": {"content": "a"}}]).text == "a"
    assert chunk(choices=[{"text": "a", "finish_reason": "stop"}]).finish == "stop"
    silent = chunk(choices=[{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
    assert (silent.produced, silent.text, silent.finish) == (False, "", "")
    thought = chunk(choices=[{"delta": {"reasoning_content": "hm"}}])
    assert (thought.produced, thought.reasoned, thought.text) == (True, True, "")
    assert chunk(choices=[{"delta": {"tool_calls": [{"index": 0}]}}]).produced


def test_counts_run_along_only_in_chunks_that_are_part_of_the_answer():
    usage = {"prompt_tokens": 3, "completion_tokens": 5}
    assert chunk(choices=[{"delta": {"content": "a"}}], usage=usage).so_far == 5
    last = chunk(choices=[], usage=usage)
    assert (last.so_far, last.usage) == (None, Usage(3, 5))
    assert chunk(choices=[{"delta": {"content": "a"}}], timings={"predicted_n": 4}).so_far == 4
    assert chunk(choices=[{"delta": {"content": "a"}}], usage=None).so_far is None


def test_usage_has_its_details_and_odd_ones_count_as_none():
    details = {"rejected_prediction_tokens": 4, "accepted_prediction_tokens": 6, "reasoning_tokens": None}
    usage = {"prompt_tokens": 3, "completion_tokens": 20, "completion_tokens_details": details,
             "prompt_tokens_details": {"cached_tokens": 2}}  # fmt: skip
    found = chunk(choices=[], usage=usage).usage
    assert found == Usage(3, 20, cached=2, reasoning=0, accepted_prediction=6, rejected_prediction=4)
    assert found.written == 16  # completion_tokens holds the rejected ones
    assert Usage(3, 20, rejected_prediction=30).written == 20  # here it cannot
    assert chunk(choices=[], usage={"completion_tokens": "many"}).usage is None


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (
            {"metrics": {"speculative_decoding": {"num_draft_tokens": 9, "num_accepted_draft_tokens": 6,
                                                  "num_spec_steps": 3}}},
            Drafted("vllm", 9, 6, 3),
        ),
        ({"timings": {"predicted_n": 8, "draft_n": 9, "draft_n_accepted": 6}}, Drafted("llama.cpp", 9, 6, None)),
        (
            {"sglext": {"spec_tokens_details": {"spec_num_proposed_drafts": 9, "spec_num_correct_drafts": 6,
                                                "spec_verify_ct": 3}}},
            Drafted("sglang", 9, 6, 3),
        ),
        (
            {"choices": [{"speculative_decoding": {"total_draft_tokens": 9, "total_accepted_draft_tokens": 6}}]},
            Drafted("tensorrt-llm", 9, 6, None),
        ),
        ({"timings": {"predicted_n": 8}}, None),
        ({"metrics": None, "timings": "x"}, None),
    ],
)  # fmt: skip
def test_speculation_of_one_request_in_four_dialects(value, found):
    assert chunk(**{"choices": [], **value}).drafted == found


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ('{"choices": [{"delta"', "not JSON"),
        ("[1]", "no JSON object"),
        ('{"error": {"message": "out of\\nmemory", "code": 500}}', "broke off: out of memory"),
        ('{"error": "overloaded"}', "overloaded"),
    ],
)
def test_what_is_no_chunk_is_a_fault_in_one_line(data, message):
    with pytest.raises(Fault, match=message) as caught:
        read(Event(data))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "event",
    [Event(""), Event("  "), Event("null"), Event("{}", "ping"), Event("now", "heartbeat"), Event("", "keep-alive")],
)
def test_249_what_keeps_a_connection_alive_is_no_part_of_an_answer(event):
    assert read(event) is None


ERRORS = {
    "event without data": (Event("", "error"), "it does not say why"),
    "event with a text": (Event("overloaded", "error"), "broke off: overloaded"),
    "event with a message": (Event('{"message": "overloaded", "code": 503}', "error"), "broke off: overloaded"),
    "event with an object": (Event('{"error": {"message": "overloaded"}}', "error"), "broke off: overloaded"),
    "event that looks like an answer": (Event('{"choices": []}', "error"), "broke off"),
    "vLLM of old": (Event('{"object": "error", "message": "too long", "code": 400}'), "broke off: too long"),
    "typed": (Event('{"type": "error", "error": {"message": "overloaded"}}'), "broke off: overloaded"),
    "FastAPI": (Event('{"detail": "no such model"}'), "broke off: no such model"),
    "a message alone": (Event('{"message": "no memory"}'), "broke off: no memory"),
    "nothing in it": (Event('{"error": {}}'), "it does not say why"),
    "in a choice": (Event('{"choices": [{"error": {"message": "gone"}, "delta": {}}]}'), "broke off: gone"),
    "as an end": (Event('{"choices": [{"delta": {}, "finish_reason": "error"}]}'), "finish_reason is 'error'"),
    "aborted": (Event('{"choices": [{"text": "", "finish_reason": "abort"}]}'), "finish_reason is 'abort'"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_249_errors_are_errors_in_every_form(name):
    event, message = ERRORS[name]
    with pytest.raises(Fault, match=message) as caught:
        read(event)
    assert caught.value.kind == "server error"


def test_249_an_empty_error_beside_an_answer_is_none():
    assert chunk(choices=[{"delta": {"content": "a"}}], error=None).text == "a"
    assert chunk(choices=[{"delta": {"content": "a"}}], error={}).text == "a"
    assert chunk(choices=[{"delta": {"content": "a"}}], message="hello").text == "a"
