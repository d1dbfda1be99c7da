"""The notation of claims: what is found in a text, what is not, and what a written number stands for."""

from fractions import Fraction
from html import escape

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from forerun.core.errors import SpecError
from forerun.lab.claims import paths, units
from forerun.lab.claims.agree import wrong
from forerun.lab.claims.notation import claims_of, marks_of
from forerun.lab.claims.written import number


def holds(text, figures, html=False, **top):
    """What is wrong with the one claim of a text; None if nothing is."""
    found = marks_of(text, html)
    assert len(found.claims) == 1, found
    assert not found.flaws
    return wrong(found.claims[0], {"figures": figures, **top}, "r.json")


# finding


def test_claims_stand_in_prose_and_in_tables():
    text = (
        "# 2.5x\n\nIt is **2.37x**<!-- a.json: x.y --> here, 5<!-- b/c.json: n -->\n"
        "ms there.\n\n| a | b |\n|---|---|\n| 1.0<!-- a.json: z in s --> | 7 |\n"
    )
    found = claims_of(text)
    assert [(c.line, c.file, c.path, c.unit) for c in found] == [
        (3, "a.json", "x.y", ""),
        (3, "b/c.json", "n", ""),
        (8, "a.json", "z", "s"),
    ]
    assert number(found[0].before, found[0].after).shown == "2.37x"
    assert number(found[1].before, found[1].after).unit == units.said("ms")  # on the next line


@pytest.mark.parametrize(
    "text",
    [
        "```md\n2<!-- a.json: x -->\n```\n",
        "~~~~\n~~~\n2<!-- a.json: x -->\n~~~~",
        "> ```\n> 2<!-- a.json: x -->\n> ```",
        "- item\n\n  ```\n  2<!-- a.json: x -->\n  ```",
        "text\n\n    2<!-- a.json: x -->\n\n    3<!-- a.json: x -->\n",
        "- item\n\n      2<!-- a.json: x -->\n",
        "see `2<!-- a.json: x -->` there",
        "see ``2<!-- a.json: `x -->`` and\n`3<!-- a.json:\nx -->` there",
        r"2\<!-- a.json: x -->",
        "<!--\n2 of x, see `a.json`\n-->",
    ],
)
def test_code_is_text(text):
    found = marks_of(text)
    assert (found.claims, found.flaws, found.unmarked) == ((), (), ())


@pytest.mark.parametrize(
    "text",
    [
        "a line\n    2<!-- a.json: x -->\n",  # goes on with the paragraph
        "- item\n\n    2<!-- a.json: x -->\n",  # a paragraph of the item
        "1. item\n   - inner\n\n     2<!-- a.json: x -->\n",
        "```\ncode\n```\n2<!-- a.json: x -->",
        "```\r\ncode\r\n```\r\n2<!-- a.json: x -->\r\n",
        "`2`<!-- a.json: x --> and `code`",
        "one ` alone\n\n2<!-- a.json: x --> and ` another",
        "one ` alone\n- 2<!-- a.json: x --> and ` another",
        "| a ` b | 2<!-- a.json: x --> | c ` d |\n| `e` | ` | f |\n",
        "| a ` b |\n| 2<!-- a.json: x --> | c ` d |\n",
        "<!-- a note\n```\n-->\n2<!-- a.json: x -->\n",
        "p <fast and 2<!-- a.json: x -->",
        "2<!--a.json:x-->",
        "2<!-- a.json:\nx -->",
    ],
)
def test_what_only_looks_like_code_is_none(text):
    assert [c.path for c in claims_of(text)] == ["x"]
    assert number(claims_of(text)[0].before).value == 2


@pytest.mark.parametrize(
    "text",
    [
        "2.37x<!-- domains: x.y -->",
        "2.37x<!-- domains.json x.y -->",
        "2.37x<!-- domains.json: x y -->",
        "2.37x<!-- todo: measure -->",
        "**2.37x**<!-- domains.json: -->",
        "yes<!-- domains.json same -->",
        "<!-- run: domains.json 3f2a -->",
        "<!-- run: domains 3f2a9c1b -->",
        "2<!-- ../domains.json: x -->",
        "2<!-- domains.json: x",
        '<data data-claim="domains.json x">2</data>',
        "<data data-claim>2</data>",
        '<data data-claim="a.json: x"/>',
        '<img data-claim="a.json: x">',
        '<div><data data-claim="a.json: x">2</div>',
        '<data data-claim="a.json: x">2',
        'text <data data-claim="a.json: x"',
    ],
)
def test_what_is_meant_as_a_claim_and_is_none_is_a_flaw(text):
    found = marks_of(text)
    assert found.claims == found.pins == ()
    assert len(found.flaws) == 1
    assert found.flaws[0].line == 1


def test_other_comments_are_nobodys_business():
    found = marks_of("<!-- table:begin -->\n\n2 of 3 <!-- a note --> x\n<!-- made from the results -->\n")
    assert (found.claims, found.flaws) == ((), ())


def test_elements_are_read_as_a_browser_would():
    page = """<!doctype html><html><head><script>var a = '<data data-claim="s.json: x">1</data>';</script></head>
<body><p>unclosed<table><tr><td data-claim='a.json: arms."d&amp;e"[1]'><b>1&#44;2</b>34<sup></sup></td>
<td><p><data value="0.0024" data-claim="a.json: t_s in s"><span>2.<i>4</i></span></data> <small>ms</small></td>
<td>5<!-- b.json: n --></td></tr></table><pre>6<!-- b.json: m --></pre></body></html>"""
    found = marks_of(page, html=True)
    assert [(c.line, c.path, c.unit, c.value) for c in found.claims] == [
        (2, 'arms."d&e"[1]', "", None),
        (3, "t_s", "s", "0.0024"),
        (4, "n", "", None),
        (4, "m", "", None),
    ]
    assert [c.before for c in found.claims[:2]] == ["1,234", "2.4"]
    assert not found.flaws
    assert holds(page.partition("<td>")[2].partition("</td>")[0], {"t_s": 0.0024}) is None
    assert "value=" in holds(page.partition("<td>")[2].partition("</td>")[0], {"t_s": 0.00241})


def test_a_unit_in_the_next_cell_is_not_this_numbers():
    assert claims_of('<td><data data-claim="a.json: x">5</data></td><td>ms</td>', html=True)[0].after == ""


def test_unmarked_figures_are_listed():
    text = (
        "It is 2.4x, `3.1x`, 12 ms<!-- a.json: t -->, **97 %**<!-- a.json: s -->, 16 x 16, v1.2x, 8<!-- a.json: n -->\n"
        "to 30 tokens/s, 5.2 ms/token<!-- a.json: m -->. <!-- 4x -->\n\n"
        '<td width="90%"><data data-claim="a.json: x">2.1x</data> 2.2×</td>\n'
    )
    assert [(flaw.line, flaw.text.split(" carries")[0]) for flaw in marks_of(text).unmarked] == [
        (1, "2.4x"),
        (2, "30 tokens/s"),
        (4, "2.2×"),
    ]


# numbers


@pytest.mark.parametrize(
    ("before", "value"),
    [
        ("about 2.37", "2.37"),
        ("(1,234,567", "1234567"),
        ("−2.5", "-2.5"),
        ("| -2.5", "-2.5"),
        ("+8.0 %", "8"),
        ("0.97–1.03", "1.03"),
        ("0.97<!-- a.json: x -->-1.03", "1.03"),
        ("5%-7%", "7"),
        ("SmolLM2-135", "135"),
        ("1.5e-3 s", "0.0015"),
        ("**2.37**x", "2.37"),
        ("<b>2.37</b> ms</td>", "2.37"),
        ("7/8", "8"),
    ],
)
def test_the_number_is_the_one_right_before(before, value):
    assert number(before).value == Fraction(value)


@pytest.mark.parametrize("before", ["q4", "faster", "2.37 somethings", "", "2.37 ", "2 (or so)"])
def test_there_may_be_no_number(before):
    assert number(before) is None


@pytest.mark.parametrize(
    "before", ["12,34", "1,2345", "0,123", "2,37", "2.3.7", "2.37.", "1 234", "1\u202f234", "1'234", "1e9999"]
)
def test_odd_digits_are_no_number(before):
    with pytest.raises(SpecError, match="is no number"):
        number(before)


@pytest.mark.parametrize(
    ("text", "figures", "right"),
    [
        ("2.35<!-- r.json: x -->", {"x": 2.345}, True),  # exact halves: both neighbours
        ("2.34<!-- r.json: x -->", {"x": 2.345}, True),
        ("2.33<!-- r.json: x -->", {"x": 2.345}, False),
        ("2<!-- r.json: x -->", {"x": 2.37}, True),
        ("1,200<!-- r.json: n -->", {"n": 1234}, False),  # trailing zeros are digits
        ("1.2e3<!-- r.json: n -->", {"n": 1234}, True),
        ("9007199254740993<!-- r.json: n -->", {"n": 9007199254740993}, True),
        ("9007199254740992<!-- r.json: n -->", {"n": 9007199254740993}, False),
        ("-0.0<!-- r.json: x -->", {"x": -0.04}, True),
        ("-0.0<!-- r.json: x -->", {"x": 0.04}, False),
        ("+0.0<!-- r.json: x -->", {"x": -0.04}, False),
        ("43%<!-- r.json: share -->", {"share": 0.4349}, True),
        ("43<!-- r.json: share -->", {"share": 0.4349}, False),
        ("0.43%<!-- r.json: share -->", {"share": 0.4349}, False),
        ("43 %<!-- r.json: used_pct -->", {"used_pct": 43.1}, True),
        ("43<!-- r.json: used_pct -->", {"used_pct": 43.1}, True),
        ("12.4 ms<!-- r.json: first_s.value -->", {"first_s": {"value": 0.01239}}, True),
        ("12.4<!-- r.json: first_s.value --> ms", {"first_s": {"value": 0.01239}}, True),
        ("12.4&nbsp;ms<!-- r.json: first_s.value -->", {"first_s": {"value": 0.01239}}, True),
        ("12.4 s<!-- r.json: first_s.value -->", {"first_s": {"value": 0.01239}}, False),
        ("6.4 ms<!-- r.json: ms_by_rows.8 -->", {"ms_by_rows": {"8": 6.3712}}, True),
        ("45.4 GB/s<!-- r.json: bandwidth_gb_s.all -->", {"bandwidth_gb_s": {"all": 45.42}}, True),
        ("1.5 kB<!-- r.json: cache_bytes -->", {"cache_bytes": 1536}, True),
        ("1.5 KiB<!-- r.json: cache_bytes -->", {"cache_bytes": 1536}, True),
        ("0.5 ms a token<!-- r.json: x in us/token -->", {"x": 500}, True),
        ("0.5 ms a token<!-- r.json: ms_per_token in ms -->", {"ms_per_token": 0.5}, True),
        ("2 tokens per pass<!-- r.json: tau in tokens/pass -->", {"tau": 2}, True),
        ("30 tokens per second<!-- r.json: tokens_per_s -->", {"tokens_per_s": 30.2}, True),
        ("yes<!-- r.json: same -->", {"same": True}, True),
        ("**No**<!-- r.json: same -->", {"same": False}, True),
        ("yes<!-- r.json: same -->", {"same": False}, False),
        ("is **no\ndifference**<!-- r.json: said -->", {"said": "no difference"}, True),
        ("faster<!-- r.json: said -->", {"said": "no difference"}, False),
        ("`ngram:depth=8`<!-- r.json: best -->", {"best": "ngram:depth=8"}, True),
        ("`other:depth=8`<!-- r.json: best -->", {"best": "ngram:depth=8"}, False),
        ("8<!-- r.json: best -->", {"best": "ngram:depth=8"}, False),
        ("2 cores<!-- r.json: /bench.processor -->", {}, True),
        ("about 2<!-- r.json: /bench.cores -->", {}, True),
        ("3<!-- r.json: /bench.cores -->", {}, False),
    ],
)
def test_what_a_number_stands_for(text, figures, right):
    found = holds(text, figures, bench={"processor": "2 cores", "cores": 2})
    assert (found is None) == right, found


@pytest.mark.parametrize(
    ("text", "figures", "said"),
    [
        ("12 ms<!-- r.json: x.speedup -->", {"x": {"speedup": 12}}, "says a time, the key a number"),
        ("2x<!-- r.json: first_s -->", {"first_s": 2}, "says a number, the key a time"),
        ("2 GB<!-- r.json: bandwidth_gb_s -->", {"bandwidth_gb_s": 2}, "the key bytes per s"),
        ("2 ms/step<!-- r.json: ms_per_token -->", {"ms_per_token": 2}, "a time per step, the key a time per token"),
        ("2 tokens/s<!-- r.json: tau -->", {"tau": 2}, "a number per s, the key a number"),
        ("2 ms<!-- r.json: x -->", {"x": 2}, "unit unknown"),
        ("2 ms<!-- r.json: first_s in ms -->", {"first_s": 2}, "says that the file holds ms, the key 'first_s'"),
        ("2 ms/token<!-- r.json: outside_ms -->", {"outside_ms": 2}, "a time per token, the key a time"),
        ("2<!-- r.json: outside_ms --> ms a token", {"outside_ms": 2}, "a time per token, the key a time"),
        ("2 ms/token<!-- r.json: x in ms -->", {"x": 2}, "a time per token, the key a time"),
        ("2 tokens/step<!-- r.json: tau -->", {"tau": 2}, "a number per step, the key a number"),
        ("2 tokens/step<!-- r.json: x -->", {"x": 2}, "unit unknown: the text says a number per step"),
        ("2 ms/step<!-- r.json: ms_per_token in ms/step -->", {"ms_per_token": 2}, "the key 'ms_per_token' says"),
        ("2 ms<!-- r.json: x in furlongs -->", {"x": 2}, "unknown unit 'furlongs'"),
        ("2<!-- r.json: x -->", {"x": None}, "null: it was not measured"),
        ("2<!-- r.json: x -->", {"x": [2]}, "not a number"),
        ("2<!-- r.json: x.lwo -->", {"x": {"low": 2}}, "did you mean 'low'"),
        ("2<!-- r.json: x.low -->", {"x": 2}, "the value 2 stands there"),
        ("2<!-- r.json: x[2] -->", {"x": [1, 2]}, "the list has 2"),
        ("2<!-- r.json: x[n=3].v -->", {"x": [{"n": 1, "v": 2}]}, "n: 1"),
        ("2<!-- r.json: x[n=1].v -->", {"x": [{"n": 1, "v": 2}] * 2}, "2 items"),
        ("2<!-- r.json: x[n=1/0].v -->", {"x": [{"n": 1, "v": 2}]}, "0 items"),
        ("2<!-- r.json: x[n=1e999999999].v -->", {"x": [{"n": 1, "v": 2}]}, "0 items"),
        ("2<!-- r.json: x[n=1].v -->", {"x": [{"n": float("inf"), "v": 2}]}, "0 items"),
        (f"2<!-- r.json: x[{'9' * 5000}] -->", {"x": [2]}, "is no path"),
        ("2<!-- r.json: x -->", {"x": float("inf")}, "is inf: no text can say that"),
        ('<data value="1/0" data-claim="r.json: x">2</data>', {"x": 2}, "has value='1/0'"),
        ('<data value="1e999999999" data-claim="r.json: x">2</data>', {"x": 2}, "has value='1e999999999'"),
        ("2<!-- r.json: x..y -->", {"x": 2}, "is no path"),
        ("2 <!-- r.json: x -->", {"x": 2}, "no number right before"),
        ('<data data-claim="r.json: x">3 of 2</data>', {"x": 2}, "no number right before"),
    ],
)
def test_units_and_paths_are_refused_with_a_reason(text, figures, said):
    assert said in holds(text, figures)


def marked(shown, path, value, html):
    """A value with its claim."""
    source = escape(f"r.json: {path}") if html else f"r.json: {path}"
    return f'<data value="{value}" data-claim="{source}">{shown}</data>' if html else f"{shown}<!-- {source} -->"


FORMATS = [(".0f", ""), (".1f", "x"), (".2f", " ms"), (".3f", ""), (",.1f", ""), ("+.2f", ""), (".1%", ""), (".3e", "")]
VALUES = st.floats(-1e7, 1e7, allow_nan=False) | st.integers(-(10**9), 10**9)


@given(value=VALUES, form=st.sampled_from(FORMATS), html=st.booleans())
@example(value=2.675, form=(".2f", " ms"), html=False)  # Python rounds it down, by hand one would not
@example(value=0.00285, form=(".1%", ""), html=False)
@example(value=-0.0, form=(".1f", "x"), html=False)
def test_a_number_formatted_from_the_value_passes_and_a_changed_digit_does_not(value, form, html):
    path = "x_ms" if "ms" in form[1] else "x"
    shown = f"{value or 0:{form[0]}}{form[1]}"
    assert holds(marked(shown, path, value or 0, html), {path: value}, html) is None
    read = number(shown)
    true = Fraction(str(value)) * (100 if shown.endswith("%") else 1)
    last = Fraction(10) ** -read.places
    assume(abs(abs(read.value - true) - last / 2) > abs(true) / 10**12)  # at an exact half both neighbours are right
    for i in [i for i, char in enumerate(shown.partition("e")[0]) if char.isdigit()]:
        other = shown[:i] + str((int(shown[i]) + 1) % 10) + shown[i + 1 :]
        # one sign of zero for another, or a leading zero before a separator, is another fault
        try:
            assert not number(other).stands_for(true, isinstance(value, int)), other
        except SpecError:
            assert "," in other


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("first_s", 0.01239, "12.4 ms<!-- r.json: first_s -->"),
        ("x", 0.01239, "12.4 ms/token<!-- r.json: x in s/token -->"),
        ("peak_bytes", 135_000_000, "135 MB<!-- r.json: peak_bytes -->"),
        ("n", 12345, "12,345<!-- r.json: n -->"),
        ("used_pct", 43.21, "43%<!-- r.json: used_pct -->"),
        ("same", True, "yes<!-- r.json: same -->"),
        ("said", "no difference", "**no difference**<!-- r.json: said -->"),
    ],
)
def test_claims_hold_in_the_unit_that_is_said(path, value, text):
    assert holds(text, {path: value}) is None
    shown, _, source = text.removesuffix(" -->").partition("<!-- ")
    held = str(value).lower() if value is True else value
    element = f'<data value="{held}" data-claim="{source}">{shown.strip("*")}</data>'
    assert holds(element, {path: value}, html=True) is None


KEYS = st.text(min_size=1, max_size=6) | st.sampled_from(["ngram:depth=8", "a b", "a.b", 'q"', "-->", "a|b", "0.7"])


@given(st.lists(KEYS, min_size=1, max_size=3))
def test_any_keys_can_be_written_as_a_path_and_read_again(keys):
    path = paths.path_of(*keys)
    assert paths.steps_of(path) == ("figures", *keys)
    assert not any(char in path for char in "|<>")
    value = 2.5
    for key in reversed(keys):
        value = {key: value}
    for html in (False, True):
        assert holds(marked("2.5", path, 2.5, html), value, html) is None


def test_items_of_lists_are_found_by_place_and_by_value():
    points = [{"rows": 1, "arm": "a,b", "ms": 3}, {"rows": 8, "arm": "c", "ms": 6}]
    for path, value in {
        "points[1].ms": 6,
        "points[rows=8].ms": 6,
        "points[rows=1.0,arm=\"a,b\"].ms": 3,
    }.items():  # fmt: skip
        assert paths.follow({"figures": {"points": points}}, paths.steps_of(path)) == value
    assert paths.path_of("points", paths.Where((("rows", "8"),)), "ms") == "points[rows=8].ms"
    assert paths.path_of("bench", "cores", top=True) == "/bench.cores"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("command_to_first_token_s", "s"),
        ("first_s", "s"),
        ("p95_ms", "ms"),
        ("ms_per_token", "ms/token"),
        ("ms_plain", "ms"),
        ("plain_ms_per_passes", "ms per pass"),
        ("tokens_per_second", "tokens/s"),
        ("tokens_s", "tokens/s"),
        ("memory_gb_s", "GB/s"),
        ("kv_bytes_per_token", "bytes/token"),
        ("used_percent", "%"),
        ("speedup", "x"),
        ("tokens/s", "tokens per second"),
    ],
)
def test_keys_name_their_units(key, text):
    assert units.of_key(key) == units.said(text) == units.declared(text)


@pytest.mark.parametrize("key", ["value", "low", "code", "s_of_it", "by_rows", "passes_by_it", "8", ""])
def test_other_keys_name_none(key):
    assert units.of_key(key) is None or units.of_key(key).kind == "number"
