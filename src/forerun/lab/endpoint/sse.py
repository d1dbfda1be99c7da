"""Server-sent events out of bytes that are cut anywhere.

The rules are those of the HTML standard, section "Interpreting an event stream": lines end in LF, CR or CRLF, a line
that starts with a colon is a comment (keep-alives are such), several `data` lines of an event are joined by LF, an
empty line ends the event, which has the name of its last `event` line. What stands at the end of the stream without an
empty line is taken too: some servers leave it out. An error that brings no data is taken as well.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from forerun.lab.endpoint.faults import Fault

_ENDS = re.compile(rb"\r\n|\r|\n")
_MOST = 16 << 20  # bytes of one event; more is not an answer that anybody reads


class Event(NamedTuple):
    """An event: its data, and its name, which most servers give none."""

    data: str
    name: str = ""


ERROR = "error"
"""The name of an event that ends an answer."""


class Events:
    """Feed it bytes; it gives every event that is complete."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = b""
        self._data: list[bytes] = []
        self._after_cr = False
        self._first = True

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes; Fault if it is not UTF-8 or has no end."""
        if self._after_cr and data.startswith(b"\n"):  # the second half of a CRLF whose line was taken at its CR
            data = data[1:]
            self._after_cr = False
        if not data:
            return []
        self._after_cr = data.endswith(b"\r")
        *lines, self._rest = _ENDS.split(self._rest + data)
        if len(self._rest) > _MOST:
            raise Fault("not a stream", f"an event of more than {_MOST >> 20} MiB: this is no stream of answers")
        return [event for line in lines if (event := self._take(line)) is not None]

    def flush(self) -> list[Event]:
        """What the end of the stream completes."""
        lines, self._rest = [self._rest, b""], b""
        return [event for line in lines if (event := self._take(line)) is not None]

    def _take(self, line: bytes) -> Event | None:
        if self._first:
            line = line.removeprefix(b"\xef\xbb\xbf")
            self._first = False
        if line:
            field, _, value = line.partition(b":")
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
            elif field == b"event":
                self._name = value.removeprefix(b" ")
            return None
        name, self._name = self._name.decode("utf-8", "replace").strip(), b""
        if not self._data and name != ERROR:
            return None
        joined, self._data = b"\n".join(self._data), []
        try:
            return Event(joined.decode("utf-8"), name)
        except UnicodeDecodeError as error:
            raise Fault("not a stream", f"an event that is not UTF-8 ({error.reason} at byte {error.start})") from None
