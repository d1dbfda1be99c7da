"""What the compiled extension offers; csrc/module.cpp is its other side."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

def isas() -> dict[str, str]:
    """Every instruction set by name, best first; the value is "" if it runs here, else why it does not."""

def isa_runs(name: str) -> bool:
    """Whether kernels of this name may be used here; "amx_emulated" may be asked for, though `isas` gives a reason."""

def cpu_quota(cgroups: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> float:
    """CPUs that control groups allow, infinity if they set no limit: their list, and where they are mounted."""

def disagreement(name: str) -> str:
    """What an instruction set computes otherwise than the portable one, "" for nothing; ValueError: not here.

    Asked of every one before it is listed as running here.
    """

def cores() -> int:
    """Cores that this process may use: affinity and cgroup quota."""

def set_threads(count: int) -> None:
    """Threads of the forwards from the next one on (0: as many as cores). RuntimeWarning at that forward if the system
    gives fewer."""

def threads() -> int: ...
def fail(thread: int) -> None:
    """MemoryError out of one thread of the pool, as if its memory had run out: for tests of what the pool does then."""

# Memory and packing (csrc/memory, csrc/pack)

class Arena:
    """Memory aligned to 64 bytes, in huge pages where the system gives them, zeroed."""

    def __init__(self, nbytes: int) -> None: ...  # MemoryError
    @property
    def nbytes(self) -> int: ...
    def read(self, path: str, offset: int) -> None:
        """Fill the whole arena from a file, starting at `offset` in the file; OSError."""
    def view(self) -> Bytes:
        """The memory itself, writable; it lives as long as the view."""

FORMATS: tuple[str, ...]  # f32 bf16 int8 q8_0 q4_0 q4_1 nf4

def packed_bytes(format: str, rows: int, cols: int) -> int: ...
def pack_f32(matrix: Floats, out: Bytes) -> None:
    """[N, K] into strips."""

def pack_bf16(matrix: NDArray[np.uint16], out: Bytes) -> None:
    """[N, K], the bits of bfloat16."""

def pack_int8(codes: NDArray[np.int8], scales: Floats, out: Bytes) -> None:
    """codes [N, K] in -127..127, scales [N]."""

def pack_blocks(
    format: str, codes: NDArray[np.int8], d: NDArray[np.float16], m: NDArray[np.float16] | None, out: Bytes
) -> None:
    """q8_0: codes [N, K] in -128..127; q4_0, q4_1: 0..15. d, m [N, K / 32], K a multiple of 32; m for q4_1 alone."""

def pack_nf4(codes: NDArray[np.uint8], absmax: Floats, out: Bytes) -> None:
    """codes [N, K] in 0..15, absmax [N, K / 64], K a multiple of 64."""

def unpack(format: str, rows: int, cols: int, packed: Bytes) -> Floats:
    """The values [N, K] of a packed matrix."""

# The vocabulary end (csrc/vocab)

def argmax(logits: Floats) -> list[int]:
    """First best id of each row [R, V]."""

def nucleus(
    row: Floats, temperature: float, top_k: int, top_p: float, min_p: float
) -> tuple[NDArray[np.int64] | None, Floats]:
    """ids [K] ascending (None: all) and weights [K] summing to one, of one row [V] of edited logits."""

def likeliest(logits: Floats, k: int) -> list[tuple[list[int], list[float]]]:
    """Of each row [R, V] the k likeliest ids, likeliest first, and the logarithms of their probabilities."""

def race(weights: Floats, ids: NDArray[np.int64] | None, key: int) -> int:
    """Index of the first to arrive; -1 if no weight is positive and finite. `key` is 64 unsigned bits."""

# The runtime (csrc/program, csrc/kv, csrc/pool)

class KV:
    """Keys and values in blocks of 16 tokens; dtype f32, bf16 or int8 (a scale per token and head)."""

    def __init__(self, layers: int, kv_heads: int, head_dim: int, blocks: int, dtype: str) -> None: ...  # MemoryError
    @property
    def nbytes(self) -> int: ...
    def move(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy slots to slots in every layer, between forwards; sources are read before anything is written."""
    def copy_block(self, source: int, target: int) -> None: ...

class Program:
    """A network: operations on numbered buffers, run front to back in one call.

    Buffers are rows of floats: one for each fed token, or, of `pick` and what follows it, one for each row wanted. Each
    operation is checked when it is added (ValueError): what it reads was written, with its kind of rows, and nothing
    follows the logits. Nothing can be added while the program runs.
    """

    def __init__(self, isa: str) -> None: ...  # ValueError: not here
    def matrix(self, format: str, rows: int, cols: int, arena: Arena, offset: int) -> int:
        """A packed matrix that lies in the arena."""
    def vector(self, values: Floats) -> int:
        """A vector, copied."""
    def buffer(self, width: int) -> int: ...
    def rope(self, inv_freq: Floats, scale: float) -> int:
        """The number of a rotation: radians per position [head_dim / 2]; what cos and sin are multiplied by."""
    def embed(self, matrix: int, out: int, *, stand_in: int = -1, id: int = -1, scale: float = 1.0) -> None:
        """Rows of the matrix by token id, times `scale`; the vector `stand_in`, if given, in the place of the row of
        `id`."""
    def feature(self, out: int) -> None:
        """The next rows that the caller feeds beside the tokens: [T, width of out]."""
    def norm(self, source: int, out: int, weight: int, eps: float, offset: int = 0, then: str = "store") -> None:
        """RMS norm, written into `out` from column `offset` on; then "add": added to what is there, and the source is
        used up."""
    def copy(self, source: int, out: int, offset: int = 0) -> None:
        """The rows of `source`, written into `out` from column `offset` on: concatenation."""
    def linear(
        self, source: int, out: int, matrix: int, *, bias: int = -1, norm: int = -1, eps: float = 0.0,
        then: str = "store", offset: int = 0,
    ) -> None:  # fmt: skip
        """out = W x + b, x normalised first if `norm` is given.

        then: "store"; "add" (to what is in `out`); "silu" (strips hold 16 gate rows and their 16 up rows; out is
        silu(gate) * up, half as wide); "gelu_tanh" (the same with GELU); "add_silu" (silu of the result, added to
        what is in `out`). `offset` is the first column of `out` (a multiple of 32); it ends at one too, or with `out`.
        """
    def attend(
        self, qkv: int, out: int, layer: int, heads: int, kv_heads: int, head_dim: int, *,
        window: int = 0, q_norm: int = -1, k_norm: int = -1, eps: float = 0.0, rope: int = 0, scale: float = 0.0,
    ) -> None:  # fmt: skip
        """Norms q and k if asked, rotates them by rotation `rope` where they lie, keeps k and v in `layer` of the
        memory, attends with scores times `scale` (0: the root of head_dim, inverted).

        qkv columns are [heads | kv_heads | kv_heads] * head_dim, and are used up; window 0 is no window. Each layer has
        one attention, all of the same heads.
        """
    def tap(self, source: int) -> None:
        """Hand these rows out as the next columns of the hidden states."""
    def pick(self, source: int, out: int) -> None:
        """Only the rows wanted go on."""
    def logits(
        self, source: int, matrix: int, *, bias: int = -1, norm: int = -1, eps: float = 0.0, ids: int = 0
    ) -> None:  # fmt: skip
        """The last operation: a linear whose result is handed out. The first best is sought among the first `ids`
        rows of the head (0: all): tables are padded beyond the real tokens."""
    def run(
        self,
        kv: KV,
        tokens: Sequence[int],
        items: Sequence[tuple[int, int, int, Sequence[int], Sequence[int]]],
        features: Floats | None = None,
        threads: int = 0,
    ) -> tuple[Floats, list[int], Floats | None]:
        """One forward, the interpreter lock released: (logits [R, V], first best of each row, hidden [T, taps]).

        Each item is (start, certain, seen, parents, blocks): storage index of its first certain token, how many of
        them, tree nodes held already, the parents of all its nodes (root -1, parents first), its block table. Rows
        are wanted of the fresh nodes. It runs on so many of the threads (0: on all), which changes no bit. ValueError
        for ids or indices out of range, MemoryError.
        """
    @property
    def isa(self) -> str: ...
    @property
    def weight_bytes(self) -> int: ...

def probe(nbytes: int, seconds: float) -> float:
    """Bytes per second that all threads read together from `nbytes` of memory in huge pages, best of several turns."""
