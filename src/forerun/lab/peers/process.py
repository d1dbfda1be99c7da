"""A peer's process: told to do one task at a time, asleep in between, and gone when we are."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from forerun.core.errors import LoadError

SERVE = Path(__file__).parent / "workers" / "serve.py"
LOAD_S = 600.0  # until a model must be there
TASK_S = 1800.0  # until a task must be done
GRACE_S = 2.0  # from being told to go until being killed
_NOT_OURS = ("OMP_", "GOMP_", "KMP_", "PYTHONPATH", "PYTHONHOME")


class Worker:
    """The module at `module` (see workers/serve.py) in the interpreter `python`, loaded; `facts` is what it says then.

    LoadError, in one line, for one that does not load, dies, fails at a task or takes too long; its log is then kept.
    Its standard input ends with us, however we end, and it with that.
    """

    facts: dict[str, Any]

    def __init__(self, name: str, python: Path, module: Path, settings: Mapping[str, object], threads: int) -> None:
        self.name = name
        handle, log = tempfile.mkstemp(prefix=f"forerun-{name.replace('/', '-')}-", suffix=".log")
        self.log, self._failed = Path(log), False
        try:
            self._process = subprocess.Popen(
                [str(python), str(SERVE), str(module), json.dumps(settings)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=handle, text=True, env=_environment(threads),
            )  # fmt: skip
        except OSError as error:
            self.log.unlink()
            raise LoadError(f"{name} cannot be started: {python}: {error.strerror or error}") from None
        finally:
            os.close(handle)
        self._heard: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        try:
            self.facts = self._hear("loading", LOAD_S)["ready"]
        except BaseException:
            self.close()
            raise

    def do(self, task: str, **request: object) -> dict[str, Any]:
        """What the worker replies to a task."""
        assert self._process.stdin is not None
        with suppress(OSError):  # it is gone: what is heard next says so
            self._process.stdin.write(json.dumps({"task": task, **request}) + "\n")
            self._process.stdin.flush()
        reply = self._hear(f"at the task {task!r}", TASK_S)
        if "error" in reply:
            raise self._fault(f"failed at the task {task!r}: {reply['error']}")
        return reply

    def close(self) -> None:
        """Let it go, or end it."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(0 if self._failed else GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._listener.join()
        process.stdout.close()
        if not self._failed:
            self.log.unlink(missing_ok=True)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._heard.put(line)
        self._heard.put(None)

    def _hear(self, when: str, seconds: float) -> dict[str, Any]:
        """The next line, as JSON."""
        try:
            line = self._heard.get(timeout=seconds)
        except queue.Empty:
            raise self._fault(f"said nothing for {seconds:g} s, {when}") from None
        if line is None:
            raise self._fault(f"ended with status {self._process.wait()}, {when}: {self._last_words()}")
        try:
            reply: dict[str, Any] = json.loads(line)
        except ValueError:
            raise self._fault(f"said {line[:80]!r}, which is no JSON, {when}") from None
        return reply

    def _fault(self, text: str) -> LoadError:
        self._failed = True
        return LoadError(f"{self.name} {' '.join(text.split())[:400]}; its log is {self.log}")

    def _last_words(self) -> str:
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else "it said nothing"


def _environment(threads: int) -> dict[str, str]:
    """Ours without what is meant for our own threads and modules."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_OURS)}
    return {**kept, "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
