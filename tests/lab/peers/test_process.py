"""A peer's process: what it says, what goes wrong with it, and that it never outlives us."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from forerun.core.errors import LoadError
from forerun.lab.peers import process
from forerun.lab.peers.process import Worker

PYTHON = Path(sys.executable)


def gone(pid, patience=120.0):
    """Whether a process ends in time; one that nobody has waited for counts as ended."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_it_says_what_it_is_and_answers_until_it_is_closed(module, monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    worker = Worker("echo/bf16", PYTHON, module, {"threads": 3}, 3)
    assert worker.facts == {"echo": "1.2", "threads": 3, "pid": worker.facts["pid"]}
    for _ in range(2):
        said = worker.do("answer", ids=[1, 2], max_tokens=3, ends=[])
        assert said["tokens"] == [2, 2, 2]
    environ = Path(f"/proc/{worker.facts['pid']}/environ").read_bytes().split(b"\0")
    assert b"OMP_NUM_THREADS=3" in environ
    assert not [line for line in environ if line.startswith(b"OMP_WAIT_POLICY")]
    assert "libraries print at import" in worker.log.read_text()
    worker.close()
    assert gone(worker.facts["pid"])
    assert not worker.log.exists()


@pytest.mark.parametrize(
    ("task", "hint"),
    [
        ("die", "ended with status 3, at the task 'die'"),
        ("fail", "failed at the task 'fail': ValueError: bad news"),
        ("sleep", "said nothing for 0.3 s, at the task 'sleep'"),
        ("dance", "failed at the task 'dance': KeyError: 'dance'"),
    ],
)
def test_a_task_that_goes_wrong_is_one_line_and_its_log_is_kept(module, monkeypatch, task, hint):
    if task == "sleep":
        monkeypatch.setattr(process, "TASK_S", 0.3)
    worker = Worker("echo", PYTHON, module, {}, 1)
    with pytest.raises(LoadError) as caught:
        worker.do(task)
    worker.close()
    said = str(caught.value)
    assert said.startswith(f"echo {hint}")
    assert said.endswith(f"; its log is {worker.log}")
    assert "\n" not in said
    assert gone(worker.facts["pid"])
    assert worker.log.exists()
    worker.log.unlink()


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("import nowhere_to_be_found", "ended with status 1, loading: ModuleNotFoundError: No module named"),
        ("def opened(settings): raise RuntimeError('no such file')", "RuntimeError: no such file"),
        ("import time\ntime.sleep(60)", "said nothing for 0.3 s, loading"),
    ],
)
def test_one_that_does_not_load_says_why(tmp_path, monkeypatch, text, hint):
    path = tmp_path / "broken.py"
    path.write_text(text)
    if "sleep" in text:
        monkeypatch.setattr(process, "LOAD_S", 0.3)
    with pytest.raises(LoadError) as caught:
        Worker("broken", PYTHON, path, {}, 1)
    assert hint in str(caught.value)
    log = Path(str(caught.value).rpartition("its log is ")[2])
    assert log.exists()
    log.unlink()


def test_one_that_speaks_another_language(tmp_path, monkeypatch):
    serve = tmp_path / "serve.py"
    serve.write_text("print('Hello!', flush=True)\ninput()")
    monkeypatch.setattr(process, "SERVE", serve)
    with pytest.raises(LoadError, match=r"'Hello!\\n', which is no JSON") as caught:
        Worker("odd", PYTHON, serve, {}, 1)
    Path(str(caught.value).rpartition("its log is ")[2]).unlink()


def test_no_such_interpreter(tmp_path, module):
    with pytest.raises(LoadError, match=r"echo cannot be started: .*No such file"):
        Worker("echo", tmp_path / "python", module, {}, 1)


@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX's")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_it_does_not_outlive_us(module, number, tmp_path):
    code = (
        "import sys; from pathlib import Path; from forerun.lab.peers.process import Worker\n"
        "worker = Worker('echo', Path(sys.executable), Path(sys.argv[1]), {}, 1)\n"
        "print(worker.facts['pid'], flush=True)\n"
        "try:\n    sys.stdin.readline()\nexcept KeyboardInterrupt:\n    worker.close()\n"
    )
    command = [sys.executable, "-c", code, str(module)]
    env = {**os.environ, "TMPDIR": str(tmp_path)}  # whoever is killed leaves a log
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as parent:
        pid = int(parent.stdout.readline())
        assert not gone(pid, 0.1)
        parent.send_signal(number)
        assert gone(pid), "it hangs"
