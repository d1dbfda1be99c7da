import time

import pytest

from forerun.core.errors import SpecError
from forerun.text.chat import render
from forerun.text.from_gguf import from_gguf

USER = {"role": "user", "content": "Hi"}


@pytest.fixture
def chat(make):
    def run(template, messages=(USER,), **variables):
        meta = make.bpe_metadata()
        if template is None:
            del meta["tokenizer.chat_template"]
        else:
            meta["tokenizer.chat_template"] = template
        prompt = variables.pop("add_generation_prompt", True)
        return render(from_gguf(meta), list(messages), prompt, variables)

    return run


def test_variables_are_there_when_they_exist(chat):
    assert chat("{{ bos_token + messages[0].content }}{{ eos_token }}") == "<s>Hi</s>"
    assert chat("{% if pad_token is defined %}a{% else %}b{% endif %}") == "b"
    assert chat("{% if add_generation_prompt %}x{% endif %}{{ flag }}", flag=3) == "x3"
    assert chat("{% if add_generation_prompt %}x{% endif %}", add_generation_prompt=False) == ""


def test_what_transformers_gives_templates(chat):
    assert chat("{{ {'a': 'é<'} | tojson }}") == '{"a": "é<"}'
    assert len(chat("{{ strftime_now('%Y') }}")) == 4
    assert chat("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "01"
    assert chat("{% generation %}a{% endgeneration %}") == "a"
    assert chat("  {% if true %}\nx\n  {% endif %}\ny") == "x\ny"
    assert chat("{% for m in messages %}{{ loop.index }}{{ loop.last }}{{ loop.length }}{% endfor %}") == "1True1"
    assert chat("{{ '%s-%s' | format(1, 'a') }}{{ 'a' ~ 1 }}{{ ['a', 'b'] | join('+') }}{{ 7 % 4 }}") == "1-aa1a+b3"
    assert chat("{% for m in messages if m.role == 'user' %}{{ m.content }}{% else %}none{% endfor %}") == "Hi"
    assert chat("{{ messages | map(attribute='role') | join(', ') }}{{ 'a b'.replace(' ', '_') }}") == "usera_b"


def test_a_template_s_refusal_is_its_own_words(chat):
    raising = "{{ raise_exception('roles must alternate') }}"
    template = "{% for m in messages %}{% if loop.index0 % 2 %}" + raising + "{% endif %}{% endfor %}"
    with pytest.raises(SpecError, match="roles must alternate"):
        chat(template, [USER, USER])


@pytest.mark.parametrize(
    "template",
    ["{{", "{% for %}", "{{ nothing.at.all }}", "{{ 1 / 0 }}", "{{ messages.append(1) }}", "{% include 'x' %}",
     "{{ ''.__class__.__mro__ }}", "{{ messages[0] + 1 }}"],
)  # fmt: skip
def test_failures_are_spec_errors(chat, template):
    with pytest.raises(SpecError, match="chat template"):
        chat(template)


def test_no_template(chat):
    with pytest.raises(SpecError, match="no chat template"):
        chat(None)


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(10000000) %}x{% endfor %}",
        "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
        "{{ 'x' * 10 ** 9 }}",
        "{{ [1] * 10 ** 9 }}",
        "{{ 10 ** (10 ** 10) }}",
        "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
        "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}",
        "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s.replace('x', 'xxx') %}{% endfor %}",
        "{{ 'x' | center(1000000000) }}",
        "{{ 'x'.ljust(1000000000) }}",
        "{{ '{:>1000000000}'.format('x') }}",
        "{{ '%1000000000d' % 3 }}",
        "{{ '%*d' % (1000000000, 3) }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_runaway_templates_end_soon(chat, template):
    start = time.perf_counter()
    with pytest.raises(SpecError):
        chat(template)
    assert time.perf_counter() - start < 5
