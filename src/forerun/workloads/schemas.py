"""Records of public sets as prompts: one pure function for each schema.

Each takes a record and the record's place in its set, which names it where the schema has no unique id. LoadError names
the field that is missing or of another type; None stands for a record in which no user says anything.
"""

from __future__ import annotations

from forerun.core.errors import LoadError
from forerun.workloads.files import to_prompt
from forerun.workloads.prompts import Prompt
from forerun.workloads.records import Record, references, spoken, text

_ASKS = {
    "gov_report": "Summarise this report in one page.",
    "multi_news": "Summarise these articles in one page.",
    "vcsum": "Summarise this meeting in its own language.",
    "passage_count": "Some of these paragraphs are repeated. How many different ones are there? Reply with the number.",
    "passage_retrieval_en": "Which of the paragraphs above does this sum up? Reply with its name.",
    "passage_retrieval_zh": "Which of the paragraphs above does this sum up? Reply with its name.",
    "lcc": "Write the next line of this code and nothing else.",
    "repobench-p": "Write the next line of this code and nothing else.",
}
"""What LongBench's tasks leave to the template that they are put into; the others ask in their `input`."""


def humaneval(record: Record, place: int) -> Prompt:
    """HumanEval: task_id, prompt (a function's head), canonical_solution, test, entry_point."""
    head = text(record, "prompt")
    asked = f"Write the body of this function. Reply with the whole function.\n\n```python\n{head.strip()}\n```"
    return Prompt(text(record, "task_id"), (asked,), "code", references(record, "canonical_solution"))


def gsm8k(record: Record, place: int) -> Prompt:
    """GSM8K: question, answer (with the steps, the number after ####)."""
    return Prompt(f"gsm8k-{place}", (text(record, "question"),), "arithmetic", (text(record, "answer"),))


def mt_bench(record: Record, place: int) -> Prompt:
    """MT-Bench: category, and prompt, prompt_id (the hub's copy) or turns, question_id (FastChat's file); reference."""
    prompt = to_prompt({**record, "id": record.get("prompt_id", record.get("question_id"))}, f"mt_bench-{place}")
    return Prompt(prompt.id, prompt.turns, text(record, "category"), prompt.reference)


def sharegpt(record: Record, place: int) -> Prompt | None:
    """ShareGPT: conversations, a list of from (human, gpt, …) and value. Blank messages and ids are left out."""
    said = record.get("conversations")
    if isinstance(said, list):  # shared pages have such holes; they are nothing to stop for
        said = [entry for entry in said if not (isinstance(entry, dict) and _blank(entry.get("value")))]
    turns = spoken({**record, "conversations": said}, "conversations", "from", "value", ("human", "user"))
    return Prompt(f"sharegpt-{place}", turns, "dialogue") if turns else None


def longbench(record: Record, place: int) -> Prompt:
    """LongBench: context, input (may be empty), dataset (the task, which becomes the category), answers, _id."""
    task = text(record, "dataset").removesuffix("_e")
    asked = text(record, "input", empty=True).strip()
    parts = [text(record, "context").strip(), _ASKS.get(task, ""), asked]
    if not any(parts[1:]):
        raise LoadError(f"field 'input' is empty, which no record of the task {task!r} may have")
    return Prompt(f"{task}-{place}", ("\n\n".join(filter(None, parts)),), task, references(record, "answers"))


def _blank(value: object) -> bool:
    return isinstance(value, str) and not value.strip()
