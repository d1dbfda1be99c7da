import subprocess
import sys

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
    with pytest.raises(SpecError):
        chat(template)


_NEST = "{% set l = [[[['x'] * 1000] * 1000] * 1000] * 1000 %}"
_GROW = "{% set n = namespace(l=[]) %}{% set b = 'x' * 10000000 %}{% for i in range(9999) %}{% set n.l = n.l + [BIG] %}"
LARGE = [
    "{{ (['x' * 1000000] * 100000) | join }}",
    "{{ ','.join(['x' * 1000000] * 100000) }}",
    "{{ (('x' * 1000, 'y') * 100000) | join(',') }}",
    "{{ range(250000) | map('string') | map('center', 1000) | list }}",
    *(_NEST + rest for rest in (
        "{{ l }}", "{{ l | tojson }}", "{{ l | string | length }}", "{{ l | join }}", "{{ l ~ 'x' }}", "{{ '%s' % l }}",
        "{{ '%s' | format(l) }}", "{{ '{}'.format(l) }}", "{{ l | replace('x', 'y') }}", "{{ l | upper }}",
    )),
    "{% set n = namespace(l=['x']) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l | tojson }}",
    *(_GROW.replace("BIG", big) + "{% endfor %}" for big in (
        "'x' * 10000000", "b[i:]", "b.replace('x', 'y')", "b | replace('x', 'y')", "b ~ i", "[1] * 200000", "b.title()",
    )),
    "{% set b = 'x' * 10000000 %}{% set c %}{% for i in range(100000) %}{{ b }}{% endfor %}{% endset %}",
    "{% macro m() %}{% for i in range(100000) %}{{ 'x' * 1000000 }}{% endfor %}{% endmacro %}{{ m() }}",
    "{{ ('x ' * 8000000).split() | length }}",
    "{{ ('x' * 16000000) | batch(1) | list | length }}",
    "{{ 'x' | slice(16000000) | list | length }}",
    "{{ ('x\n' * 1000000) | indent('y' * 1000000) }}",
    "{{ (1).to_bytes(1000000000, 'big') }}",
    "{{ '%9999999d%9999999d%9999999d' % (1, 2, 3) }}",
    "{{ '{0:{1}}'.format('x', '1000000000') }}",
    "{{ '{0}{0}{0}{0}'.format('x' * 10000000) }}",
    "{{ '%.1000000000f' % 1.5 }}{{ 1.5 | round(1000000000, 'ceil') }}",
    "{{ ([[1] * 100000] * 1000) | sum(start=[]) | length }}",
    "{{ {}.fromkeys(range(10000000)) | length }}",
    "{% filter center(1000000000) %}x{% endfilter %}",
]  # fmt: skip
_PROGRAM = """
import resource, sys
from forerun.core.errors import SpecError
from forerun.text.sandbox import Sandbox
from jinja2 import TemplateError
sandbox = Sandbox()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for template in eval(sys.stdin.read()):
    try:
        sandbox.run(template, {})
    except (TemplateError, MemoryError) as error:
        assert not isinstance(error, MemoryError), template
    else:
        raise AssertionError(template)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    assert grown < 400, (grown, template)
"""


def test_265_what_a_template_makes_is_bounded_before_it_is_made():
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], input=repr(LARGE), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert len(LARGE) > 30


def test_265_what_conversations_need_is_not_refused(chat):
    long = {"role": "user", "content": "a line\n" * 100_000}
    told = chat("{% for m in messages %}{{ m.content | trim }}{{ m.content[:4] }}{% endfor %}", [long] * 4)
    assert len(told) == 4 * (700_000 - 1 + 4)
    assert chat("{{ messages[0].content.split('\n') | length }}", [long]) == "100001"
