"""Files of the user's own: every form is read, and whatever is wrong is named with its line and field."""

import json

import pytest

from forerun.core.errors import LoadError
from forerun.workloads.files import from_path


def save(path, *records):
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in records), encoding="utf-8")
    return path


def asked(workload):
    return {prompt.id: prompt.turns for prompt in workload.prompts}


def test_the_fastchat_form(tmp_path):
    (tmp_path / "my_bench").mkdir()
    record = {"question_id": 7, "category": "rag", "turns": ["one", "two"], "reference": ["a", ["b", 3]], "other": {}}
    workload = from_path(save(tmp_path / "my_bench" / "question.jsonl", record))
    (prompt,) = workload.prompts
    assert (prompt.id, prompt.turns, prompt.category) == ("7", ("one", "two"), "rag")
    assert prompt.reference == ("a", "b", "3")
    assert workload.name == "my_bench"
    assert workload.source == str(tmp_path / "my_bench" / "question.jsonl")


def test_every_field_that_may_hold_what_is_asked(tmp_path):
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "an answer"},
        {"role": "user", "content": [{"type": "text", "text": "sec"}, {"type": "text", "text": "ond"}]},
    ]
    file = save(
        tmp_path / "mine.jsonl",
        {"text": "t"},
        "",
        {"prompt": "p", "id": "named"},
        {"prompt": ["p", "q"], "task_id": "task/3"},
        {"messages": messages, "text": "not this"},
        {"turns": ["u"], "prompt": None, "id": None, "category": "", "reference": None},
    )
    assert asked(from_path(file)) == {
        "line-1": ("t",),
        "named": ("p",),
        "task/3": ("p", "q"),
        "line-5": ("first", "sec\nond"),
        "line-6": ("u",),
    }
    assert from_path(file).name == "mine"
    assert [prompt.system for prompt in from_path(file).prompts] == ["", "", "", "be brief", ""]


@pytest.mark.parametrize("name", ["x.parquet", "x.csv", "x.jsonl.gz"])
def test_326_forms_that_are_no_text_are_refused_by_name(name, tmp_path):
    (tmp_path / name).write_text("a prompt")
    with pytest.raises(LoadError, match="prompts are read from"):
        from_path(tmp_path / name)


@pytest.mark.parametrize("separator", ["\u2028", "\x85", "\x0b"])
def test_a_line_ends_where_json_says(tmp_path, separator):
    line = json.dumps({"text": f"one{separator}two"}, ensure_ascii=False)
    if separator == "\x0b":  # a control character, which JSON wants escaped
        line = json.dumps({"text": f"one{separator}two"})
    assert asked(from_path(save(tmp_path / "f.jsonl", line))) == {"line-1": (f"one{separator}two",)}


def test_a_byte_order_mark_and_windows_line_ends_are_no_text(tmp_path):
    (tmp_path / "f.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "one"}\r\n{"text": "two"}\r\n')
    (tmp_path / "f.txt").write_bytes(b"\xef\xbb\xbfone\r\n---\r\ntwo\r\n")
    assert asked(from_path(tmp_path / "f.jsonl")) == {"line-1": ("one",), "line-2": ("two",)}
    assert asked(from_path(tmp_path / "f.txt")) == {"block-1": ("one",), "block-2": ("two",)}


BAD = [
    ('{"text": "x"', "not JSON (Expecting ',' delimiter, column 13)"),
    ("[1]", "a list instead of an object"),
    ("[" * 100_000, "not JSON that can be read"),
    ('{"text": ' + "1" * 5000 + "}", "not JSON that can be read"),
    ('{"question": "x"}', "no prompt: one of the fields turns, messages, prompt, text is needed (it has: question)"),
    ("{}", "(it has: nothing)"),
    ('{"text": 3}', "field 'text' must be text, got 3"),
    ('{"text": ["x"]}', "field 'text' must be text, got ['x']"),
    ('{"text": "  "}', "field 'text' is empty"),
    ('{"text": "\\ud800"}', "half a surrogate pair"),
    ('{"prompt": {"a": 1}}', "field 'prompt' must be text or a list of texts"),
    ('{"turns": []}', "field 'turns' is an empty list"),
    ('{"turns": ["x", ""]}', "text 2 of field 'turns' is empty"),
    ('{"turns": ["x", 1]}', "field 'turns' must be text or a list of texts"),
    ('{"messages": "x"}', "field 'messages' must be a list of messages with 'role' and 'content'"),
    ('{"messages": [{"content": "x"}]}', "message 1 of field 'messages': no field 'role' (it has: content)"),
    ('{"messages": [{"role": "user"}]}', "message 1 of field 'messages': no field 'content' (it has: role)"),
    ('{"messages": [{"role": "system", "content": "x"}]}', "field 'messages' has no message of role 'user'"),
    (
        '{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}',
        "message 1 of field 'messages': field 'content' may only have parts of type 'text'",
    ),
    ('{"text": "x", "category": 1}', "field 'category' must be text, got 1"),
    ('{"text": "x", "id": true}', "field 'id' must be text, got True"),
    ('{"text": "x", "id": ""}', "field 'id' is empty"),
    ('{"text": "x", "reference": [{}]}', "field 'reference' must be text, a number or a list of these, got {}"),
    ('{"text": "x", "id": "first"}', "id 'first' is that of line 1 too"),
]


@pytest.mark.parametrize(("line", "message"), BAD)
def test_a_bad_line_is_named(tmp_path, line, message):
    file = save(tmp_path / "f.jsonl", {"text": "fine", "id": "first"}, "", line)
    with pytest.raises(LoadError) as caught:
        from_path(file)
    assert str(caught.value).startswith(f"{file} line 3: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_number_and_its_digits_are_one_id(tmp_path):
    with pytest.raises(LoadError, match="line 2: id '1' is that of line 1 too"):
        from_path(save(tmp_path / "f.jsonl", {"id": 1, "text": "x"}, {"id": "1", "text": "y"}))


@pytest.mark.parametrize("name", ["f.jsonl", "f.txt"])
@pytest.mark.parametrize("said", [b"", b"\n \n", b"\xef\xbb\xbf"])
def test_a_file_without_prompts(tmp_path, name, said):
    (tmp_path / name).write_bytes(said)
    with pytest.raises(LoadError, match=f"{name} has no prompts: it is empty or blank"):
        from_path(tmp_path / name)


@pytest.mark.parametrize("name", ["f.jsonl", "f.txt"])
def test_a_file_that_is_not_utf_8(tmp_path, name):
    (tmp_path / name).write_bytes("{'text': 'привет'}".encode("cp1251"))
    with pytest.raises(LoadError, match=f"{name} is not UTF-8 .byte 10."):
        from_path(tmp_path / name)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(LoadError, match=r"cannot read .*nothing\.txt: No such file"):
        from_path(tmp_path / "nothing.txt")


def test_plain_text_has_a_prompt_on_each_line(tmp_path):
    (tmp_path / "ask.md").write_text("one\n\n  two --- three \n---x\n", encoding="utf-8")
    assert asked(from_path(tmp_path / "ask.md")) == {
        "line-1": ("one",),
        "line-3": ("two --- three",),
        "line-4": ("---x",),
    }


@pytest.mark.parametrize(
    ("said", "blocks"),
    [
        ("one\ntwo\n---\n\nthree\n", {"block-1": "one\ntwo", "block-2": "three"}),
        ("---\none\n  --- \n---\n---x\n---", {"block-2": "one", "block-4": "---x"}),
        ("one\n\ntwo\n---\n", {"block-1": "one\n\ntwo"}),
    ],
)
def test_lines_of_dashes_part_blocks(tmp_path, said, blocks):
    (tmp_path / "ask.txt").write_text(said, encoding="utf-8")
    assert asked(from_path(tmp_path / "ask.txt")) == {id: (text,) for id, text in blocks.items()}


def test_a_folder_of_stories(tmp_path):
    stories = tmp_path / "stories"
    (stories / "deep").mkdir(parents=True)
    for name, said in (("b.txt", "\nB\n---\nb\n"), ("a.TXT", "A"), ("notes.md", "no"), ("deep/c.txt", "no")):
        (stories / name).write_text(said, encoding="utf-8")
    workload = from_path(stories)
    assert asked(workload) == {"a": ("A",), "b": ("B\n---\nb",)}
    assert workload.name == "stories"
    (stories / "c.txt").write_text(" ", encoding="utf-8")
    with pytest.raises(LoadError, match=r"c\.txt: turn 1 of prompt 'c' is empty"):
        from_path(stories)


def test_a_folder_without_text(tmp_path):
    (tmp_path / "notes.md").write_text("x")
    with pytest.raises(LoadError, match=r"is a folder without \.txt files"):
        from_path(tmp_path)
