"""How far a long run is: a bar that is drawn over on a terminal, now and then a plain line where stderr is a file."""

from __future__ import annotations

import sys
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forerun.train.news import News

LINE_EACH_S = 15.0
"""How often a phase is told of where no bar can be drawn."""
_BAR = "{desc}: {percentage:3.0f}%|{bar}| {postfix}"


class Screen:
    """One bar at a time, that of the phase which is told of."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._phase = ""
        self._line = 0.0
        self._last: News | None = None

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def said(self, text: str) -> None:
        """A line of its own, above the bar."""
        if self._bar is not None:
            self._bar.clear()
        print(text, file=sys.stderr, flush=True)

    def news(self, news: News) -> None:
        """Show it."""
        if news.phase != self._phase or (self._last and news.done < self._last.done):
            self._end()
            self._phase, self._line = news.phase, 0.0
        self._last = news
        if sys.stderr.isatty():
            self._draw(news)
        elif perf_counter() - self._line >= LINE_EACH_S:
            self._line = perf_counter()
            print(in_words(news), file=sys.stderr, flush=True)

    def _draw(self, news: News) -> None:
        from tqdm import tqdm

        if self._bar is None:
            self._bar = tqdm(
                total=1.0, desc=news.phase, file=sys.stderr, bar_format=_BAR, mininterval=0.2, miniters=0, leave=True
            )
        self._bar.n = min(1.0, news.done / news.total) if news.total else 0.0
        self._bar.set_postfix_str(counted(news), refresh=False)
        self._bar.update(0)
        if perf_counter() - self._line >= 0.2:
            self._line = perf_counter()
            self._bar.refresh()

    def _end(self) -> None:
        """The phase is over: its last state stays on the screen."""
        if self._bar is not None:
            self._bar.refresh()
            self._bar.close()
        elif self._last is not None and self._phase:
            print(in_words(self._last), file=sys.stderr, flush=True)
        self._bar, self._last, self._phase = None, None, ""


def counted(news: News) -> str:
    """What is done of how much, and the time that is left."""
    total = f"/{news.total:,.0f}" if news.total else ""
    left = f", {clock(news.left)} left" if news.left is not None else ""
    note = f", {news.note}" if news.note else ""
    return f"{news.done:,.0f}{total} {news.unit}{left}{note}"


def in_words(news: News) -> str:
    """A phase in a line."""
    share = f"{min(1.0, news.done / news.total):.0%}, " if news.total else ""
    return f"{news.phase}: {share}{counted(news)}"


def clock(seconds: float) -> str:
    """A time as people write it."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
