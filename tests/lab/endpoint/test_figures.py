"""What is said of times and tokens: the ways in which such figures mislead, one by one."""

from dataclasses import replace

import pytest

from forerun.lab.endpoint.cells import cell, peak, spread
from forerun.lab.endpoint.chunk import Drafted, Usage
from forerun.lab.endpoint.compare import equal_work, ratios
from forerun.lab.endpoint.figures import figures
from forerun.lab.endpoint.load import Record
from forerun.lab.endpoint.metrics import Counts
from forerun.lab.endpoint.part import Part
from forerun.lab.endpoint.prices import Price
from forerun.lab.endpoint.reply import Reply
from forerun.lab.endpoint.show import notes, view
from forerun.lab.endpoint.speculation import volume
from forerun.lab.stats import Interval
from forerun.lab.views import spoken


def reply(tokens=100, per_event=4, first_s=0.1, gap_s=0.04, counted=True, usage=True, drafted=None, retokenised=None):
    count = tokens // per_event
    events = tuple((first_s + i * gap_s, per_event if counted else None) for i in range(count))
    told = Usage(10, tokens) if usage is True else usage
    return Reply(events, first_s + (count - 1) * gap_s, told, "length", drafted, 0, "d", retokenised)


def part(*replies, arm="A", key="1/0/0", wall_s=None, counts=None, clean=True, prompt="p", **more):
    records = tuple(
        Record(f"{prompt}{i}", 0, 0.0, 1, 0.0, r) if isinstance(r, Reply) else r for i, r in enumerate(replies)
    )
    wall = wall_s or max((r.reply.latency_s for r in records if r.reply), default=1.0)
    quiet = {"by": "metrics", "waited_s": 0.0, "clean": clean}
    return Part(key, more.pop("level", 1), 0, arm, wall, 0.01, quiet, True, counts, records)


FAILED = Record("p", 0, 0.0, 3, 1.0, None, "status 500", "the server answers 500")


@pytest.mark.parametrize("counted", [True, False])
def test_events_are_not_tokens(counted):
    """100 tokens in 25 events of 4, one each 40 ms, the first after 100 ms."""
    found = cell([part(reply(counted=counted))], None)
    assert found["tokens"] == 100
    assert found["ms_per_token"]["median"] == pytest.approx(10.0)
    assert found["tokens_per_s"]["median"] == pytest.approx(100.0)
    assert found["burst_gap_ms"]["median"] == pytest.approx(40.0)
    assert found["tokens_per_burst"] == 4
    assert found["ttft_ms"]["median"] == pytest.approx(100.0)
    assert found["peak_tokens_per_s"] >= found["total_tokens_per_s"]


def test_events_of_one_step_that_come_one_by_one_are_one_burst():
    """Six tokens a step, sent as six events 30 microseconds apart."""
    events = tuple((0.1 * step + 3e-5 * i, 1) for step in range(1, 6) for i in range(6))
    found = cell([part(Reply(events, 0.6, Usage(1, 30), "stop", None, 0, "d"))], None)
    assert (found["events"], found["bursts"], found["tokens_per_burst"]) == (30, 5, 6)
    assert found["burst_gap_ms"]["median"] == pytest.approx(100)


def test_gaps_have_the_weight_of_their_tokens():
    events = ((0.1, 1), (0.12, 1), (0.14, 1), (0.3, 8))  # most tokens waited 160 ms
    one = Reply(events, 0.3, Usage(1, 11), "stop", None, 0, "d")
    assert cell([part(one)], None)["burst_gap_ms"]["median"] == pytest.approx(160)


def test_tokens_are_the_servers_and_a_tokenizer_of_ours_is_a_cross_check():
    found = cell([part(reply(retokenised=7))], None)
    assert (found["tokens"], found["retokenised"]) == (100, 7)
    shown = figures([part(reply(retokenised=7)), part(reply(retokenised=7), arm="A again")], {})
    assert "A, 1 at once: cross-check, not a count: --tokenizer makes 7 tokens of the texts" in list(notes(shown))


def test_without_usage_nothing_is_said_by_token():
    found = cell([part(reply(counted=False, usage=None))], Price(1, 1))
    assert found["counted_by"] == "nobody"
    for name in ("tokens", "ms_per_token", "tokens_per_s", "total_tokens_per_s", "peak_tokens_per_s", "cost"):
        assert found[name] is None
    assert found["ttft_ms"]["median"] == pytest.approx(100.0)
    both = figures([part(reply(counted=False, usage=None), arm=arm) for arm in ("A", "A again")], {})
    assert any("does not count tokens" in note for note in notes(both))
    assert spoken(view(both))


def test_one_event_has_no_time_between_tokens():
    assert reply(tokens=4, per_event=4).ms_per_token is None
    assert reply(tokens=4, per_event=4, counted=False).ms_per_token is None


def test_rejected_predictions_and_hidden_reasoning_are_no_delivered_tokens():
    usage = Usage(10, 130, reasoning=20, rejected_prediction=10)
    told = reply(counted=False, usage=usage)
    told = Reply(told.events, told.latency_s, usage, "stop", None, 20, "d")
    assert told.tokens == 120
    assert told.after_first == pytest.approx(100 * 24 / 25)


def test_the_peak_is_never_below_the_mean():
    """Tokens in one burst, and evenly, over less than a second and over more."""
    for events, wall in (
        (((0.0, 50), (2.9, 50)), 3.0),
        (tuple((i / 10, 1) for i in range(35)), 3.5),
        (((0.1, 5), (0.2, 5)), 0.2),
    ):
        one = part(Reply(events, wall, None, "stop", None, 0, "d"), wall_s=wall)
        assert peak(one) >= one.tokens / wall - 1e-9
    bursts = Reply(((0.0, 50), (2.9, 50)), 3.0, None, "stop", None, 0, "d")
    assert peak(part(bursts, wall_s=3.0)) == pytest.approx(50)
    assert peak(part(bursts, wall_s=3.9)) == pytest.approx(50 / 1.3)  # three stretches of 1.3 s


def test_failed_requests_are_counted_and_stand_in_no_time():
    good = part(reply(), key="1/0/0")
    bad = part(FAILED, reply(first_s=9.0), key="1/0/1", wall_s=60.0)
    found = cell([good, bad], None)
    assert (found["requests"], found["failed"], found["failures"]) == (3, 1, {"status 500": 1})
    assert (found["smooth_blocks"], found["blocks"]) == (1, 2)
    assert found["total_tokens_per_s"] == pytest.approx(100 / good.wall_s, rel=1e-3)
    retried = Record("p", 0, 5.0, 2, 5.0, reply())
    again = cell([good, part(retried, wall_s=6.0)], None)
    assert (again["retried"], again["smooth_blocks"]) == (1, 1)
    assert again["latency_ms"]["p95"] == pytest.approx(1e3 * reply().latency_s)


def test_spreads():
    assert spread([]) is None
    assert spread([1.0, 2.0, 3.0, 4.0])["median"] == 2.5
    assert spread([float(i) for i in range(1, 101)]) == {"median": 50.5, "p05": 5.5, "p95": 95.5, "of": 100}
    assert spread([1.0, 9.0], [9.0, 1.0])["median"] == 1.0


def test_costs_are_of_the_answers_that_came():
    usage = Usage(100, 50, accepted_prediction=20, rejected_prediction=10)
    found = cell([part(reply(usage=usage), FAILED)], Price(1.0, 2.0, per=100))["cost"]
    assert found["total"] == pytest.approx(2.0)
    assert found["of_rejected"] == pytest.approx(0.2)
    assert (found["accepted_prediction_tokens"], found["rejected_prediction_tokens"]) == (20, 10)


def test_models_are_compared_prompt_by_prompt_where_both_answered():
    """B takes half the time a token; a prompt that one of them failed is left out, whatever the other took."""
    first = [part(reply(gap_s=0.04 * i), key=f"1/0/{i}", prompt=f"p{i}") for i in (1, 2, 3, 4)]
    second = [part(reply(gap_s=0.02 * i), key=f"1/0/{i}", prompt=f"p{i}", arm="B") for i in (1, 2, 3)]
    second.append(part(FAILED, key="1/0/4", arm="B"))
    found = ratios(first, second)["ms_per_token"]
    assert (found.value, found.of) == (pytest.approx(2.0), 3)


def test_a_conversation_of_which_one_arm_answered_less_is_no_pair():
    """Two turns of one prompt; B failed the second, which was the long one."""

    def turns(arm, *replies):
        records = tuple(Record("p", turn, 0.0, 1, 0.0, r) for turn, r in enumerate(replies) if r is not None)
        return [part(*records, arm=arm)]

    whole, half = turns("A", reply(), reply(gap_s=0.4)), turns("B", reply(), None)
    assert ratios(whole, half)["latency"] is None
    assert ratios(whole, turns("B", reply(), reply(gap_s=0.4)))["latency"].value == pytest.approx(1)


def test_rounds_of_a_prompt_are_one_pair():
    first = [part(reply(gap_s=0.04), key=f"1/{i}/0") for i in range(3)]
    second = [part(reply(gap_s=gap), key=f"1/{i}/0", arm="B") for i, gap in enumerate((0.02, 0.01, 0.4))]
    assert ratios(first, second)["ms_per_token"] == Interval(pytest.approx(2.0), None, None, 1)


def whole(**arms):
    """Figures over six prompts; each arm's replies are made by its own options."""
    parts = []
    for name, options in {"A": {}, "A again": {}, **arms}.items():
        for i in range(6):
            made = reply(**{k: v for k, v in options.items() if k not in ("counts", "clean")})
            parts.append(part(made, key=f"1/0/{i}", prompt=f"p{i}", arm=name,
                              counts=options.get("counts"), clean=options.get("clean", True)))  # fmt: skip
    return figures(parts, {})


def test_more_accepted_tokens_and_less_speed_is_slower():
    found = whole(
        B={"gap_s": 0.08, "counts": Counts("vllm", 20, 80, 72, (20, 18, 17, 17))},
        C={"gap_s": 0.02, "counts": Counts("vllm", 20, 80, 40, (20, 10, 6, 4))},
    )
    verdicts = {model: found["compared"][model]["1"]["ms_per_token"]["verdict"] for model in "BC"}
    assert verdicts == {"B": "slower", "C": "faster"}
    rates = {model: found["cells"][model]["1"]["speculation"]["acceptance"] for model in "BC"}
    assert rates == {"B": 0.9, "C": 0.5}
    table = next(item for item in view(found) if getattr(item, "title", "").startswith("Speculation"))
    assert {"accepted", "drafted", "a round", "of the answers", "ms/token"} <= set(table.heads)
    assert [row[-2] for row in table.rows] == ["20.00", "5.00"]


@pytest.mark.parametrize(
    ("counts", "warned"),
    [((1000, 1000, 250), "too good"), ((4, 4, 100), "says little"), ((400, 260, 100), None)],
)
def test_a_rate_that_means_nothing_is_warned_about(counts, warned):
    drafted, accepted, rounds = counts
    found = volume(drafted, accepted, rounds, 500 if accepted < 500 else 1250)
    assert any(warned in text for text in found["warnings"]) if warned else not found["warnings"]
    assert None not in (found["drafted_per_round"], found["share_of_answers"], found["rounds"])


def test_strangers_and_restarts_are_noticed():
    assert any("somebody else" in text for text in volume(400, 300, 100, 200)["warnings"])
    unread = [part(reply(), counts=Counts("vllm", 1, 2, 1)), part(reply(), key="1/0/1")]
    assert cell(unread, None)["speculation"]["warnings"] == [
        "counters could be read around 1 of 2 blocks: nothing can be said of speculation"
    ]
    found = whole(B={"counts": Counts("vllm", restarted=True)})
    (told,) = found["cells"]["B"]["1"]["speculation"]["warnings"]
    assert "began anew" in told
    assert "acceptance" not in found["cells"]["B"]["1"]["speculation"]
    assert spoken(view(found))


def test_what_each_answer_tells_goes_before_counters():
    found = whole(B={"drafted": Drafted("llama.cpp", 80, 60, None), "counts": Counts("llama.cpp", 1, 2, 1)})
    told = found["cells"]["B"]["1"]["speculation"]
    agreed = whole(B={"drafted": Drafted("llama.cpp", 80, 60, None), "counts": Counts("llama.cpp", 8, 80, 60)})
    assert agreed["cells"]["B"]["1"]["speculation"]["drafted_per_round"] == 10  # counters know the rounds
    assert (told["source"], told["drafted"], told["acceptance"]) == ("llama.cpp, in every answer", 480, 0.75)
    sglang = whole(B={"counts": Counts("sglang", passes=10, generated=25)})["cells"]["B"]["1"]["speculation"]
    assert sglang["tokens_per_pass"] == 2.5


def test_249_whole_answers_of_different_lengths_are_no_race():
    """B stops at half the length, C cannot be counted and is the same text, D is as long and takes half the time."""
    found = whole(B={"tokens": 52}, C={"counted": False, "usage": None, "gap_s": 0.01}, D={"gap_s": 0.02})
    here = {model: found["compared"][model]["1"] for model in "BCD"}
    assert here["B"]["latency"]["verdict"] == "unequal answers"
    assert here["B"]["tokens"] == (100.0, 52.0)
    assert (here["C"]["latency"]["verdict"], here["C"]["tokens"]) == ("faster", None), "the same text is equal work"
    assert (here["D"]["latency"]["verdict"], here["D"]["tokens"]) == ("faster", (100.0, 100.0))
    (table,) = [item for item in view(found) if getattr(item, "title", "").startswith("Times faster")]
    assert [row[5].endswith(": unequal answers") for row in table.rows] == [True, False, False]


def test_249_texts_that_differ_and_are_not_counted_are_no_equal_work():
    one = reply(counted=False, usage=None)
    assert equal_work([(one, one)])
    assert not equal_work([(one, replace(one, digest="e"))])
    assert equal_work([])
    assert not equal_work([(reply(tokens=0, per_event=1), reply())])


def test_211_looping_answers_of_a_server_are_named_and_left_out():
    """B is twice as fast, but only where its answers loop."""
    parts = []
    for i in range(8):
        looping = (30, 40) if i < 4 else (0, 40)
        for arm, gap in (("A", 0.04), ("A again", 0.04), ("B", 0.02 if i < 4 else 0.04)):
            made = replace(reply(gap_s=gap), repeats=looping if arm == "B" else (0, 40))
            parts.append(part(made, key=f"1/0/{i}", prompt=f"p{i}", arm=arm))
    found = figures(parts, {})
    assert found["cells"]["B"]["1"]["looping"] == {"answers": 4, "of": 8, "repeated": 0.375}
    assert found["compared"]["B"]["1"]["without_looping"]["ms_per_token"]["value"] == pytest.approx(1.0)
    said = "\n".join(notes(found))
    assert "B, 1 at once: 4 of 8 answers loop, 38% of all 6-grams stood before" in said
    assert "B, 1 at once: without answers that loop, 1.00" in said
    assert "A, 1 at once: 4 of" not in said


def test_notes_say_what_the_figures_must_not_be_read_without():
    said = "\n".join(notes(whole(B={"tokens": 40, "clean": False}, C={"counted": False})))
    assert "B, 1 at once: before 6 of 6 blocks the server was NOT idle" in said
    assert "B, 1 at once: its answers have 40.0 tokens on average, those of A 100.0" in said
    assert "C, 1 at once: events hold several tokens" in said
    assert "A, 1 at once" not in said
