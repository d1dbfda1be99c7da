"""What can go wrong while the native runtime runs: a clear error or a clean stop, no crash, no hang.

What forks, interrupts or may hang does so in a process of its own, with a limit of time.
"""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import forerun
from forerun.core.errors import CapacityError, LoadError
from forerun.testing.tiny import write_folder

_ext = pytest.importorskip("forerun.native._ext", reason="the native extension was not built")

from nets import Bench, Feed, Packed, config, here

HERE = Path(__file__).parent
SETTING = f"""
import os, random, signal, sys, threading, time
sys.path.append({str(HERE)!r})
import numpy as np
from forerun.native import _ext
from nets import Bench, Feed, Packed, config, here

def bench(**changes):
    shape = config(random.Random(1), "bf16", **changes)
    return Bench(Packed(shape, "bf16"), shape, here()[0], "bf16", 128)

def prompt(bench, length=200):
    held = bench.sequence(length + 16)
    before = len(bench._free)
    result = bench.run([Feed(held, [i % 31 for i in range(length)], [1, 2], [-1, 0])])[0].tobytes()
    bench._free += held.blocks
    return result
"""


def alone(code: str, limit: float = 200) -> str:
    """Run code after SETTING in another process; what it printed. A crash or a hang fails."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SETTING + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_fork_after_the_pool_started_runs_on_in_both():
    said = alone("""
        _ext.set_threads(3)
        one = bench()
        before = prompt(one)
        child = os.fork()
        if child == 0:
            same = [prompt(one) == before for _ in range(3)]
            os._exit(0 if all(same) else 3)
        assert [prompt(one) == before for _ in range(3)] == [True] * 3
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status))
    """)
    assert said.strip() == "0"


def test_a_fork_in_the_middle_of_a_forward_of_another_thread():
    said = alone("""
        _ext.set_threads(2)
        one, stop = bench(), threading.Event()
        before = prompt(one)
        busy = bench()
        def work():
            while not stop.is_set():
                prompt(busy)
        thread = threading.Thread(target=work)
        thread.start()
        codes = []
        for _ in range(5):
            time.sleep(0.01)
            child = os.fork()
            if child == 0:
                os._exit(0 if prompt(one) == before else 3)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        stop.set()
        thread.join()
        print(codes)
    """)
    assert said.strip() == "[0, 0, 0, 0, 0]"


def test_an_interrupt_in_mid_forward_is_raised_after_it_and_harms_nothing():
    said = alone("""
        one = bench(hidden_size=160, layers=3, windows=(None,) * 3)
        before = prompt(one, 600)
        caught = 0
        for i in range(5):
            try:
                threading.Timer(0.005 * (i + 1), os.kill, (os.getpid(), signal.SIGINT)).start()
                while True:
                    prompt(one, 600)
            except KeyboardInterrupt:
                caught += 1
                one._free = list(range(128))
        assert prompt(one, 600) == before
        print(caught)
    """)
    assert said.strip() == "5"


def test_two_threads_of_python_may_each_run_a_network():
    said = alone("""
        _ext.set_threads(2)
        benches = [bench(), bench()]
        before, wrong = prompt(benches[0]), []
        def work(one):
            for _ in range(50):
                if prompt(one) != before:
                    wrong.append(one)
        threads = [threading.Thread(target=work, args=(one,)) for one in benches]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        print(len(wrong))
    """)
    assert said.strip() == "0"


def test_the_number_of_threads_may_change_between_forwards():
    said = alone("""
        one = bench()
        told = set()
        for count in (1, 4, 2, 1, 3):
            _ext.set_threads(count)
            assert _ext.threads() == count
            told.add(prompt(one))
        print(len(told))
    """)
    assert said.strip() == "1"


def test_the_number_of_threads_may_change_during_forwards():
    said = alone("""
        one, stop = bench(), threading.Event()
        before, wrong = prompt(one), []
        def change():
            while not stop.is_set():
                for count in (1, 4, 2, 8, 3):
                    _ext.set_threads(count)
        changing = threading.Thread(target=change)
        changing.start()
        for _ in range(200):
            wrong += [1] * (prompt(one) != before)
        stop.set()
        changing.join()
        print(len(wrong))
    """)
    assert said.strip() == "0"


def test_idle_threads_sleep():
    """Some time after a forward they take nothing of the processor, however long it takes them to come to rest."""
    alone("""
        _ext.set_threads(3)
        prompt(bench())
        while True:
            before = time.process_time()
            time.sleep(0.1)
            if time.process_time() - before < 0.005:
                break
    """)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("weights", ["auto", "bf16", "int8", "q4"])
def test_weights_that_are_no_numbers_are_refused_by_name(tmp_path, monkeypatch, value, weights):
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))
    folder = write_folder(tmp_path / "m")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][3, 5] = value
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(LoadError, match=r"layers\.1\.mlp\.up_proj") as caught:
        forerun.load(folder, runtime="native", weights=weights)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("tokens", [10**13, 10**30])
def test_memory_for_keys_that_cannot_be_had_is_one_clear_line(models, tokens):
    with pytest.raises(CapacityError, match=r"tokens \(\d+ MiB on cpu\): ask for fewer kv_tokens"):
        forerun.load(models["folder"], runtime="native", kv_tokens=tokens)


def test_more_threads_than_cores_warn(models):
    before = _ext.threads(), torch.get_num_threads()
    try:
        with pytest.warns(RuntimeWarning, match="usable core"):
            forerun.load(models["folder"], runtime="native", threads=_ext.cores() + 1).close()
    finally:
        _ext.set_threads(before[0])
        torch.set_num_threads(before[1])


def test_indices_out_of_range_are_refused():
    memory = _ext.KV(1, 1, 8, 4, "f32")
    for slots in (([0], [64]), ([-1], [0]), ([0, 1], [2])):
        with pytest.raises(ValueError, match=r"slot|many"):
            memory.move(*slots)
    for blocks in ((0, 4), (-1, 0)):
        with pytest.raises(ValueError, match="block"):
            memory.copy_block(*blocks)
    for shape in ((0, 1, 8, 4, "f32"), (1, 1, 7, 4, "f32"), (1, 1, 8, 0, "f32"), (1, 1, 8, 4, "f8")):
        with pytest.raises(ValueError, match=r"layers|odd|block|allowed"):
            _ext.KV(*shape)


def test_a_forward_that_does_not_fit_is_refused_and_changes_nothing():
    shape = config(random.Random(1), "f32")
    bench = Bench(Packed(shape, "f32"), shape, here()[0], "f32", 8)
    held = bench.sequence(32)
    row = bench.run([Feed(held, [1, 2, 3], [4], [-1])])[0]
    run, (first, second) = bench.program.run, held.blocks
    for tokens, item in (
        ([shape.vocab_size], (3, 0, 0, [-1], held.blocks)),
        ([-1], (3, 0, 0, [-1], held.blocks)),
        ([1, 2], (3, 0, 0, [-1], held.blocks)),
        ([1], (3, 0, 0, [-1, 0], held.blocks)),
        ([1, 2], (3, 0, 0, [-1, 1], held.blocks)),
        ([1, 2], (3, 0, 0, [-1, -1], held.blocks)),
        ([1], (3, 0, 0, [0], held.blocks)),
        ([1], (32, 0, 0, [-1], held.blocks)),
        ([1], (3, 0, 0, [-1], [first, 8])),
        ([1], (3, 0, 0, [-1], [-1, second])),
        ([1], (-1, 1, 0, [], held.blocks)),
        ([1], (3, 0, 2, [-1], held.blocks)),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            run(bench.memory, tokens, [item])
    with pytest.raises(ValueError, match=r"\w"):
        run(_ext.KV(shape.layers, shape.kv_heads, shape.head_dim + 2, 8, "f32"), [1], [(0, 0, 0, [-1], [0])])
    again = run(bench.memory, [4], [(3, 0, 0, [-1], held.blocks)])[0]
    assert np.array_equal(again, row)
