"""Programs are checked as they are written, and nothing that a caller does ends or hangs the process."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

_ext = pytest.importorskip("forerun.native._ext", reason="the native extension was not built")

from nets import here

D = 32
ROOT = [(0, 0, 0, [-1], [0])]
ALONE = """
import os, resource, signal, sys, threading, time
sys.path.append({here!r})
import numpy as np
from forerun.native import _ext
from test_checks import D, ROOT, matrix, memory, net
"""


def matrix(program, rows, cols, format="f32", fill=None):
    """A matrix of random or equal values, in `format`."""
    draw = np.random.default_rng(rows)
    size = _ext.packed_bytes(format, rows, cols)
    arena = _ext.Arena(size)
    whole = arena.view()[:size]
    if format == "f32":
        values = draw.standard_normal((rows, cols)) if fill is None else np.full((rows, cols), fill)
        _ext.pack_f32(values.astype(np.float32), whole)
    elif format == "bf16":
        values = draw.standard_normal((rows, cols)).astype(np.float32).view(np.uint32) >> 16
        _ext.pack_bf16(values.astype(np.uint16), whole)
    elif format == "int8":
        _ext.pack_int8(draw.integers(-127, 128, (rows, cols)).astype(np.int8), np.full(rows, 0.01, np.float32), whole)
    elif format == "nf4":
        codes = draw.integers(0, 16, (rows, cols)).astype(np.uint8)
        _ext.pack_nf4(codes, np.full((rows, cols // 64), 0.01, np.float32), whole)
    else:
        codes = draw.integers(-127, 128, (rows, cols)) if format == "q8_0" else draw.integers(0, 16, (rows, cols))
        scales = np.full((rows, cols // 32), 0.01, np.float16)
        _ext.pack_blocks(format, codes.astype(np.int8), scales, scales if format == "q4_1" else None, whole)
    return program.matrix(format, rows, cols, arena, 0)


def memory(heads=1, width=8, blocks=4, format="f32"):
    return _ext.KV(1, heads, width, blocks, format)


def net(isa="portable", layers=2, width=D):
    """Embedding, products, logits."""
    program = _ext.Program(isa)
    weights = matrix(program, width, width)
    a, b, last = (program.buffer(width) for _ in range(3))
    program.embed(weights, a)
    for _ in range(layers):
        program.linear(a, b, weights)
        program.linear(b, a, weights)
    program.pick(a, last)
    program.logits(last, weights)
    return program


def alone(code, limit=60):
    """What code prints in a process of its own; a crash or a hang fails."""
    setting = ALONE.format(here=str(Path(__file__).parent))
    done = subprocess.run(
        [sys.executable, "-c", setting + textwrap.dedent(code)], capture_output=True, text=True, timeout=limit
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_301_fewer_threads_than_asked_for_do_the_work():
    told = alone(
        """
        program, kv = net(), memory()
        used = int(open("/proc/self/statm").read().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20),) * 2)
        _ext.set_threads(64)
        print(np.isfinite(program.run(kv, [1], ROOT)[0]).all())
        """
    )
    assert "True" in told
    assert "of 64 threads" in told


def test_302_a_pool_that_shrinks_while_its_threads_fall_asleep_ends():
    told = alone(
        """
        program, kv = net(), memory()
        for i in range(400):
            _ext.set_threads(2 + i % 3)
            program.run(kv, [1], ROOT)
            time.sleep(0.0001 * (i % 5))
        print("done")
        """
    )
    assert "done" in told


def test_303_a_child_runs_the_program_that_the_parent_was_running():
    told = alone(
        """
        _ext.set_threads(2)
        program, kv, stop = net(width=256, layers=20), memory(blocks=64), False
        go = lambda: program.run(kv, [1] * 64, [(0, 63, 0, [-1], list(range(64)))])
        def work():
            while not stop:
                go()
        thread = threading.Thread(target=work)
        thread.start()
        for _ in range(5):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                go()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        stop = True
        thread.join()
        print("done")
        """
    )
    assert "done" in told


def wrong_programs():
    """What is refused, and by which words."""

    def program(build):
        made = _ext.Program("portable")
        weights = matrix(made, D, D)
        return lambda: build(made, weights, *(made.buffer(D) for _ in range(4)))

    def begun(rest):
        def build(p, m, a, b, c, d):
            p.embed(m, a)
            rest(p, m, a, b, c, d)

        return program(build)

    yield "pick the wanted ones", begun(lambda p, m, a, *_: p.logits(a, m))
    yield "rows of all fed", begun(lambda p, m, a, *_: p.pick(a, a))
    yield "rows of all fed", begun(lambda p, m, a, b, *_: (p.pick(a, b), p.linear(b, a, m)))
    yield "wanted rows only", begun(lambda p, m, a, b, c, d: (p.pick(a, b), p.pick(b, c)))
    yield "wanted rows only", begun(lambda p, m, a, b, *_: (p.pick(a, b), p.tap(b)))
    yield "last operation", begun(lambda p, m, a, b, *_: (p.pick(a, b), p.logits(b, m), p.logits(b, m)))
    yield "buffer 99", begun(lambda p, m, a, b, *_: p.linear(99, b, m))
    yield "before anything wrote it", program(lambda p, m, a, b, *_: p.linear(a, b, m))


def test_304_a_program_that_cannot_run_is_refused_as_it_is_written():
    for says, build in wrong_programs():
        with pytest.raises((ValueError, IndexError), match=says):
            build()


def test_304_attentions_have_one_shape_and_a_rotation_that_is_there():
    program = _ext.Program("portable")
    weights = matrix(program, D, 3 * 16)
    qkv, wide, out, again = (program.buffer(width) for width in (3 * 16, 4 * 16, 16, 32))
    program.rope(np.ones(8, np.float32), 1.0)
    program.embed(weights, qkv)
    program.attend(qkv, out, 0, 1, 1, 16)
    program.embed(matrix(program, D, 4 * 16), wide)
    with pytest.raises(ValueError, match="same heads"):
        program.attend(wide, again, 0, 2, 1, 16)
    with pytest.raises(ValueError, match="the same number of angles"):
        program.rope(np.ones(4, np.float32), 1.0)
    program = _ext.Program("portable")
    qkv, out = program.buffer(3 * 16), program.buffer(16)
    program.rope(np.ones(8, np.float32), 1.0)
    program.embed(matrix(program, D, 3 * 16), qkv)
    with pytest.raises(ValueError, match="no rotation 1"):
        program.attend(qkv, out, 0, 1, 1, 16, rope=1)


def test_304_random_programs_are_refused_or_equal_a_plain_interpreter():
    draw, refused, ran = random.Random(0), 0, 0
    for _ in range(150):
        program = _ext.Program("portable")
        rows = [np.random.default_rng(i).standard_normal((D, D)).astype(np.float32) for i in range(2)]
        weights = []
        for values in rows:
            arena = _ext.Arena(_ext.packed_bytes("f32", D, D))
            _ext.pack_f32(values, arena.view()[: _ext.packed_bytes("f32", D, D)])
            weights.append(program.matrix("f32", D, D, arena, 0))
        buffers = [program.buffer(D) for _ in range(4)]
        held, picked, logits = {}, set(), None
        tokens, wanted = [3, 5, 7], slice(1, 3)
        try:
            program.embed(weights[0], buffers[0])
            held[0] = rows[0][tokens]
            for _ in range(draw.randrange(1, 7)):
                likely = draw.random() < 0.9
                a = draw.choice(list(held)) if likely else draw.randrange(4)
                b, w = draw.randrange(4), draw.randrange(2)
                if draw.random() < 0.3:
                    program.pick(buffers[a], buffers[b])
                    held[b] = held[a][wanted]
                    picked.add(b)
                else:
                    program.linear(buffers[a], buffers[b], weights[w])
                    held[b] = held[a] @ rows[w].T
                    (picked.add if a in picked else picked.discard)(b)
            a = draw.choice(sorted(picked) or [0])
            program.logits(buffers[a], weights[1])
            logits = held[a] @ rows[1].T
        except ValueError:
            refused += 1
            continue
        found = program.run(memory(), tokens, [(0, 1, 0, [-1, 0], [0])])[0]
        np.testing.assert_allclose(found[:, :D], logits, rtol=1e-4, atol=1e-3)
        ran += 1
    assert refused > 20
    assert ran > 5


def test_305_nothing_is_added_while_a_program_runs():
    told = alone(
        """
        program, kv, stop = net(width=256, layers=20), memory(blocks=64), False
        def work():
            while not stop:
                program.run(kv, [1] * 64, [(0, 63, 0, [-1], list(range(64)))])
        thread = threading.Thread(target=work)
        thread.start()
        refused = 0
        for _ in range(3000):
            try:
                program.buffer(64)
                time.sleep(0)  # it was between two runs, and waits to be let on
            except ValueError as error:
                assert "another thread" in str(error), error
                refused += 1
                if refused == 300:
                    break
        stop = True
        thread.join()
        print("refused", refused)
        """
    )
    assert "refused 300" in told


def test_306_sizes_that_overflow_are_refused():
    program, huge = net(), 1 << 31
    for item in ((2**63 - 1, 1, 0, [-1], [0]), (0, 2**62, 0, [-1], [0]), (2**40, 0, 0, [-1], [0])):
        with pytest.raises((ValueError, OverflowError, MemoryError)):
            program.run(memory(), [1], [item])
    with pytest.raises(ValueError, match="cannot have"):
        _ext.Program("portable").matrix("f32", huge, huge, _ext.Arena(100), 0)
    with pytest.raises((ValueError, MemoryError, OverflowError)):
        memory(blocks=1 << 60)


def test_306_a_product_does_not_write_past_its_columns():
    """Twenty rows are padded to a strip; what stands behind them is another's."""
    program = _ext.Program("portable")
    fed, joined = program.buffer(D), program.buffer(20 + D)
    weights = matrix(program, 20, D, fill=1.0)
    try:
        program.feature(fed)
        program.copy(fed, joined, 20)
        program.linear(fed, joined, weights)
        program.tap(joined)
    except ValueError:
        return
    hidden = program.run(memory(), [0], ROOT, np.full((1, D), 7, np.float32))[2]
    assert (hidden[0, 20 : 20 + D] == 7).all()


@pytest.mark.parametrize("isa", here())
@pytest.mark.parametrize("format", _ext.FORMATS)
def test_308_a_value_that_is_not_a_number_stays_one(format, isa):
    program = _ext.Program(isa)
    weights = matrix(program, 64, 128, format)
    fed, last = program.buffer(128), program.buffer(128)
    program.feature(fed)
    program.pick(fed, last)
    program.logits(last, weights)
    for odd in (np.nan, np.inf, -np.inf):
        rows = np.ones((2, 128), np.float32)
        rows[0, 5] = odd
        logits, _, _ = program.run(memory(), [0, 0], [(0, 0, 0, [-1, 0], [0])], rows)
        assert not np.isfinite(logits[0, :64]).any()
        assert np.isfinite(logits[1, :64]).all()


@pytest.mark.parametrize("isa", here())
@pytest.mark.parametrize("kv", ["f32", "bf16", "int8"])
def test_309_a_value_of_an_ended_sequence_is_not_read(kv, isa):
    width = 64
    program = _ext.Program(isa)
    weights = matrix(program, D, width)
    fed, out, last = program.buffer(3 * width), program.buffer(width), program.buffer(width)
    program.rope(np.ones(width // 2, np.float32), 1.0)
    program.feature(fed)
    program.attend(fed, out, 0, 1, 1, width)
    program.pick(out, last)
    program.logits(last, weights)
    held = memory(width=width, format=kv)
    good = np.random.default_rng(1).standard_normal((1, 3 * width)).astype(np.float32)
    clean = program.run(held, [0], ROOT, good)[0].copy()
    bad = np.repeat(good, 3, 0)
    bad[2, width:] = np.nan
    program.run(held, [0] * 3, [(0, 2, 0, [-1], [0])], bad)
    again = program.run(held, [0], ROOT, good)[0]
    np.testing.assert_array_equal(clean, again)


def test_310_bits_do_not_depend_on_the_threads_mode():
    told = alone(
        """
        import torch
        _ext.set_threads(2)
        program = _ext.Program("portable")
        weights = matrix(program, 2048, D, fill=1e-20)
        fed, last = program.buffer(D), program.buffer(D)
        program.feature(fed)
        program.pick(fed, last)
        program.logits(last, weights)
        kv, row = memory(), np.full((1, D), 1e-20, np.float32)
        before = program.run(kv, [0], ROOT, row)[0].copy()
        torch.set_flush_denormal(True)
        after = program.run(kv, [0], ROOT, row)[0]
        kept = before.tobytes() == after.tobytes() and np.frombuffer(after.tobytes(), np.uint32).all()
        print(bool(kept), float(torch.tensor(1e-38) * 1e-3) == 0.0)
        """
    )
    assert "True True" in told, "equal bits, and the caller's own mode is as it was"


def test_311_int8_takes_more_than_65536_columns():
    program = _ext.Program("portable")
    wide = 65600
    weights = matrix(program, 32, wide, "int8")
    fed, last = program.buffer(wide), program.buffer(wide)
    program.feature(fed)
    program.pick(fed, last)
    program.logits(last, weights)
    row = np.random.default_rng(2).standard_normal((1, wide)).astype(np.float32)
    found = program.run(memory(), [0], ROOT, row)[0][0, :32]
    exact = np.random.default_rng(32).integers(-127, 128, (32, wide)).astype(np.int8) @ row[0] * np.float32(0.01)
    np.testing.assert_allclose(found, exact, atol=0.02 * np.abs(exact).max())


@pytest.mark.parametrize("isa", here())
def test_a_forward_on_fewer_threads_has_the_same_bits(isa):
    program = net(isa, width=128)
    before = _ext.threads()
    _ext.set_threads(3)
    try:
        rows = [
            program.run(memory(blocks=8), [1] * 20, [(0, 19, 0, [-1], [0, 1])], None, n)[0] for n in (1, 2, 3, 0, 9)
        ]
    finally:
        _ext.set_threads(before)
    for row in rows[1:]:
        np.testing.assert_array_equal(rows[0], row)
    with pytest.raises(ValueError, match="threads must be"):
        program.run(memory(), [1], ROOT, None, -1)
