"""What the results of the bench scripts show."""

from forerun.lab.experiments import views
from forerun.lab.views import Chart, spoken


def charts(shown):
    return [view for view in shown if isinstance(view, Chart)]


def test_memory_is_told_by_its_parts():
    arm = {"peak_mb": 442.4, "weights_mb": 96.6, "kv_mb": 70.8, "over_mb": 275.0, "command_to_first_token_s": 1.63}
    shown = views("memory", {"model": "m", "context": 2048, "native q4_1": arm, "torch float32": arm})
    assert "native q4_1" in spoken(shown)
    assert "2,048 tokens" in spoken(shown)
    assert "1.63" in spoken(shown)
    (chart,) = charts(shown)
    assert [(series.name, series.ys[0]) for series in chart.series] == [
        ("weights", 96.6), ("keys and values", 70.8), ("the rest", 275.0),
    ]  # fmt: skip
    assert chart.series[0].xs == ("native q4_1", "torch float32")


def test_perplexity_is_told_beside_f32():
    formats = {
        "f32": {"perplexity": 20.0, "over_f32": 0.0, "matrices": {"f32": 121}},
        "nf4": {"perplexity": 25.0, "over_f32": 0.25, "matrices": {"q8_0": 1, "nf4": 120}},
    }
    shown = views("perplexity", {"text": "f8ca", "tokens": 16384, "window": 1024, "formats": formats})
    assert "+25.00%" in spoken(shown)
    assert "1 q8_0, 120 nf4" in spoken(shown)
    assert charts(shown)[0].series[0].ys == (0.0, 25.0)


def test_rows_are_told_over_one_row():
    times = {"1": 20.0, "2": 22.0, "8": 30.0}
    entry = {"forward_ms": times, "packed_ms": times, "F.linear_ms": times, "packed_rows_same_bits": True}
    odd = {**entry, "packed_rows_same_bits": False}
    shown = views("rows", {"model": "m", "context": 256, "rounds": 3, "float32": entry, "bfloat16": odd})
    said = spoken(shown)
    assert "float32: rows of the packed products have the same bits" in said
    assert "bfloat16: rows of the packed products do NOT have" in said
    first, _ = charts(shown)
    assert first.log_x
    assert first.series[0].xs == (1.0, 2.0, 8.0)
    assert first.series[0].ys == (1.0, 1.1, 1.5)


def test_neighbours_are_told_by_threads():
    scene = {"ms": {"all": 9.5, "one": 4.0, "chosen": 4.1}, "of_alone": 1.3}
    (shown,) = views("neighbours", {"q4_1": {"1 rows": {"0 neighbours": scene, "1 neighbours": scene}}})
    assert shown.rows[1] == ("1", "9.50", "4.00", "4.10", "1.30x")
