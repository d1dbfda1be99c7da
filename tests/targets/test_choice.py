"""Which runtime runs a model: decided from the options, with a reason, and refused where they contradict."""

import pytest

from forerun.core.errors import SpecError
from forerun.native import ext
from forerun.targets.choice import Choice, Wish, choose


@pytest.fixture
def built(monkeypatch):
    monkeypatch.setattr(ext, "why_not", lambda: "")


@pytest.fixture
def missing(monkeypatch):
    monkeypatch.setattr(ext, "why_not", lambda: "no compiler was found")


def test_on_a_cpu_the_native_runtime_is_the_default(built):
    assert choose(Wish()) == Choice("native", "the default on CPUs")
    assert choose(Wish(weights="q4", kv="int8")) == Choice("native", "the default on CPUs", "q4", "int8")


@pytest.mark.parametrize(
    ("wish", "why"),
    [(Wish(device="cuda"), "device cuda"), (Wish(dtype="float16"), "float16"), (Wish(runtime="torch"), "asked for")],
)
def test_torch_serves_the_rest_and_says_why(built, wish, why):
    choice = choose(wish)
    assert choice.runtime == "torch"
    assert why in choice.why
    assert choice.device == wish.device
    assert choice.dtype == ("float16" if wish.dtype == "float16" else "float32")


def test_without_the_extension_torch_serves_and_says_why(missing):
    choice = choose(Wish(dtype="bfloat16"))
    assert (choice.runtime, choice.why, choice.dtype) == ("torch", "no compiler was found", "bfloat16")
    for wish in (Wish(runtime="native"), Wish(weights="int8"), Wish(kv="int8")):
        with pytest.raises(SpecError, match="no compiler was found"):
            choose(wish)


def test_a_dtype_stands_for_weights_and_memory(built):
    assert choose(Wish(dtype="float32")) == Choice("native", "the default on CPUs", "f32", "f32")
    assert choose(Wish("native", dtype="bfloat16")) == Choice("native", "asked for", "bf16", "bf16")
    assert choose(Wish(dtype="float32", kv="int8")).kv == "int8"
    assert choose(Wish(dtype="bfloat16", weights="bf16")).weights == "bf16"


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (Wish(dtype="float32", weights="int8"), "dtype float32 and weights int8 contradict"),
        (Wish(dtype="bfloat16", weights="f32"), "dtype bfloat16 and weights f32 contradict"),
        (Wish("native", dtype="float16"), "float16"),
        (Wish("native", device="cuda:1"), "device cuda:1"),
        (Wish("torch", weights="nf4"), "weights nf4 is an option of the native runtime; runtime torch takes dtype"),
        (Wish("hf", kv="bf16"), "kv bf16 is an option of the native runtime; runtime hf takes dtype"),
        (Wish(device="cuda", kv="bf16"), "not used here: .*device cuda"),
    ],
)
def test_options_that_contradict_one_another_are_refused(built, wish, said):
    with pytest.raises(SpecError, match=said):
        choose(wish)
