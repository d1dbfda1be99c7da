"""Evaluation sets stay out of training data: runs of words that both have are found and what holds them is dropped."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from forerun.workloads.files import from_path

RUN = 10
"""Words in a row that are nobody's by chance."""
_WORD = re.compile(r"\w+")


class Overlap:
    """Runs of words of some texts."""

    def __init__(self, texts: Iterable[str], run: int = RUN) -> None:
        self._run = run
        self._known = {words for text in texts for words in _runs(text, run)}

    @classmethod
    def of_files(cls, paths: Iterable[Path]) -> Overlap:
        """All turns and references of prompt files."""
        prompts = [prompt for path in paths for prompt in from_path(path).prompts]
        return cls(text for prompt in prompts for text in (*prompt.turns, *prompt.reference))

    def __contains__(self, text: str) -> bool:
        """Whether a run of the known texts is in this one."""
        return bool(self._known) and any(words in self._known for words in _runs(text, self._run))

    @property
    def digest(self) -> str:
        """What changes with the texts."""
        return sha256(repr(sorted(self._known)).encode()).hexdigest()[:16]

    def __len__(self) -> int:
        return len(self._known)


def _runs(text: str, run: int) -> Iterable[tuple[str, ...]]:
    words = _WORD.findall(text.lower())
    return (tuple(words[at : at + run]) for at in range(len(words) - run + 1))
