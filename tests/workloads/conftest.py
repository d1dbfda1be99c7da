"""A record of every public set, with the fields that the set has."""

import pytest


@pytest.fixture
def records():
    return {
        "humaneval": {
            "task_id": "HumanEval/900",
            "prompt": "\n\ndef twice(x: int) -> int:\n    '''Two times x.'''\n",
            "canonical_solution": "    return 2 * x\n",
            "test": "def check(candidate): ...",
            "entry_point": "twice",
        },
        "gsm8k": {"question": "Two and two?", "answer": "It is <<2+2=4>>4.\n#### 4"},
        "mt_bench": {"prompt": ["one", "two"], "prompt_id": 12345, "category": "writing", "reference": []},
        "sharegpt": {
            "id": "QWJhYvA_0",
            "conversations": [
                {"from": "system", "value": "be kind"},
                {"from": "human", "value": "first"},
                {"from": "gpt", "value": "an answer"},
                {"from": "human", "value": "  "},
                {"from": "human", "value": "second"},
            ],
        },
        "longbench": {
            "input": "Who wrote it?",
            "context": "A long text.\n",
            "answers": ["Ann", "Anne"],
            "length": 3,
            "dataset": "qasper",
            "language": "en",
            "all_classes": None,
            "_id": "0f",
        },
    }
