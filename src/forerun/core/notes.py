"""What the user of a file should know of it, although it loads: one mechanism for all that reading a model remarks.

Whoever reads collects sentences; `assemble` gives them as warnings of the category `Note`, so Python's own filters hold
for them, and the command line prints each in one line on stderr.
"""

import warnings
from collections.abc import Iterable


class Note(UserWarning):
    """A remark about a model's files: an odd field that is ignored, a flag that tensors contradict, another format."""


def give(notes: Iterable[str]) -> None:
    """Tell the user, each note once."""
    for note in dict.fromkeys(notes):
        warnings.warn(note, Note, stacklevel=3)
