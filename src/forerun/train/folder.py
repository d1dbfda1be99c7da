"""The folder that a run writes to: what may be there, the account of a run that is under way, and its result.

`run.json` says what was asked of a run and how long it took so far, from its beginning to its end, `training.pt` where
training stands. A run with the same settings goes on with them; one with others is refused by the name of the first
that differs.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from safetensors import SafetensorError

from forerun.core.errors import CapacityError, LoadError, SpecError
from forerun.train.disk import reason, written

RUN, TRAINING = "run.json", "training.pt"
RESULT = (
    "README.md", "head.json", "head.safetensors", "held_out.jsonl", "config.json", "model.safetensors",
    "tokenizer.json", "tokenizer_config.json", "generation_config.json", "card.json", "medusa",
)  # fmt: skip
"""What a result may consist of."""
_WEIGHTS, _CONFIGS = (
    (".safetensors", ".bin", ".pt", ".gguf"),
    ("model.safetensors.index.json", "generation_config.json"),
)
_TOLD_EACH_S = 5.0

Settings = Mapping[str, object]


@dataclass(slots=True)
class Account:
    """A run that is under way in `out`: what was asked of it, and the seconds of each phase so far."""

    out: Path
    settings: Settings
    seconds: dict[str, float] = field(default_factory=dict)
    sessions: int = 1
    makes: bool = False
    """Whether the corpus that it uses is its own making."""
    dtype: str = ""
    """What lessons compute in, once that is known: a run that goes on stays with it."""
    open: bool = True
    _phase: str = "loading"
    _at: float = field(default_factory=perf_counter)
    _told: float = 0.0

    @property
    def spent(self) -> float:
        """Seconds of all phases and sessions."""
        return sum(self.seconds.values()) + perf_counter() - self._at

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A block whose time is `name`'s."""
        before = self._phase
        self._count()
        self._phase = name
        try:
            yield
        finally:
            self._count()
            self._phase = before

    def tick(self, now: bool = False) -> None:
        """Write it down, if that is some seconds ago or is to be done `now`."""
        self._count()
        if now or perf_counter() - self._told >= _TOLD_EACH_S:
            said = {
                "settings": self.settings, "seconds": self.seconds, "sessions": self.sessions, "makes": self.makes,
                "dtype": self.dtype,
            }  # fmt: skip
            text = json.dumps(said, indent=1, ensure_ascii=False)
            written(self.out / RUN, lambda scratch: scratch.write_text(text, encoding="utf-8"))
            self._told = perf_counter()

    def leave(self, corpus: Path) -> None:
        """The run is left before its end: it is written down for the next time, or forgotten if nothing was saved."""
        if not self.open:
            return
        made = self.makes and any(corpus.glob("shard-*.safetensors"))
        with suppress(CapacityError, OSError):
            if made or (self.out / TRAINING).exists() or self.sessions > 1:
                self.tick(now=True)
            else:
                self.close()
                self.out.rmdir()

    def _count(self) -> None:
        now = perf_counter()
        self.seconds[self._phase] = self.seconds.get(self._phase, 0.0) + now - self._at
        self._at = now

    def close(self) -> None:
        """The run is over."""
        self.open = False
        for name in (RUN, TRAINING):
            (self.out / name).unlink(missing_ok=True)


def under_way(out: Path, settings: Settings, overwrite: bool, names: tuple[str, ...] = RESULT) -> Account | None:
    """The account of the run that `settings` describe, begun or gone on with; None if it has been done already.

    `names` are of the files that it will write. SpecError if something else is there that it would write over, or a run
    with other settings is under way.
    """
    if out.exists() and not out.is_dir():
        raise SpecError(f"{out} is a file: --out names a folder")
    settings = json.loads(json.dumps(settings))
    if (out / RUN).exists():
        account, odd = _gone_on(out, settings)
        if odd is None:
            return account
        if not overwrite:
            raise SpecError(
                f"{out} holds a run that is not finished, with {_option(odd, account.settings.get(odd))}; this one has "
                f"{_option(odd, settings.get(odd))}: give it the same, another --out, or --overwrite to begin anew"
            )
    if overwrite:
        for name in (RUN, TRAINING):
            (out / name).unlink(missing_ok=True)
    else:
        if (out / TRAINING).exists():
            raise SpecError(
                f"{out / TRAINING} is of another version of forerun: delete it, or begin anew with --overwrite"
            )
        card = card_in(out) if names else None
        if card is not None and card.get("settings") == settings:
            return None
        if there := next((name for name in names if (out / name).exists()), None):
            what = f"a head already ({_told(card)})" if card else f"{there} already, which this run would write over"
            raise SpecError(f"{out} holds {what}: give another --out, or --overwrite")
    account = Account(out, settings)
    account.tick(now=True)
    return account


def _gone_on(out: Path, settings: Settings) -> tuple[Account, str | None]:
    """The account of the run that is under way there, and the first of its settings that is another one's."""
    try:
        said = json.loads((out / RUN).read_bytes())
        theirs, seconds, sessions = said["settings"], dict(said["seconds"]), int(said["sessions"])
        makes, dtype = bool(said["makes"]), str(said["dtype"])
        odd = next((name for name in {**theirs, **settings} if theirs.get(name) != settings.get(name)), None)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LoadError(f"{out / RUN} cannot be read ({error}): delete it to begin anew") from error
    return Account(out, theirs, seconds, sessions + 1, makes, dtype), odd


def _option(name: str, value: object) -> str:
    if value is None or value is False or value == []:
        return f"no {name}"
    shown = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return name if value is True else f"{name} {shown}"


def _told(card: Mapping[str, Any]) -> str:
    tau = card.get("tau")
    worth = f", tau {tau['all']:.2f}" if isinstance(tau, Mapping) and "all" in tau else ""
    return f"{card.get('kind', 'of an unknown kind')}{worth}"


def card_in(out: Path) -> dict[str, Any] | None:
    """What the card of the result in `out` says; None if there is none."""
    for name in ("head.json", "card.json"):
        try:
            said = json.loads((out / name).read_bytes())
        except (OSError, ValueError):
            continue
        card = said.get("card", {}) if name == "head.json" and isinstance(said, dict) else said
        if isinstance(card, dict):
            return card
    return None


def replace_head(out: Path, write: Callable[[Path], object], overwrite: bool) -> int:
    """Let `write` fill the folder `out`, in the place of a head or model that is there if it is to `overwrite` it; its
    bytes. SpecError if it is not, or if something of them would stay beside."""
    there = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
    held = [name for name in there if name in RESULT or Path(name).suffix in _WEIGHTS or name in _CONFIGS]
    if out.exists() and not out.is_dir():
        raise SpecError(f"{out} is a file: --out names a folder")
    if held and not overwrite:
        raise SpecError(f"{out} holds {held[0]} already: give another --out, or --overwrite")
    return put(out, write, tuple(held))


def put(out: Path, write: Callable[[Path], object], names: tuple[str, ...] = RESULT) -> int:
    """Let `write` make files in a folder beside, and put them in the place of those of `names` in `out`; their bytes.

    CapacityError if they cannot be written: then what was there before is as it was.
    """
    scratch = out / ".writing"
    try:
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        write(scratch)
        size = sum(path.stat().st_size for path in scratch.rglob("*") if path.is_file())
        for name in names:
            old = out / name
            shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
        for path in scratch.iterdir():
            path.replace(out / path.name)
    except (OSError, SafetensorError, RuntimeError) as error:
        raise CapacityError(f"{out} cannot be written to: {reason(error)}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return size
