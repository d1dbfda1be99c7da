"""What experiments take if nobody says: kept apart from them, so that help is instant."""

from __future__ import annotations

DRAFTERS = ("ngram", "suffix")
WORKLOADS = ("code", "arithmetic", "dialogue", "russian")
PROMPTS = 12  # of each workload
TOKENS = 96  # most of an answer

CURVE_ROWS = "1,2,4,8,16,32,64,128,256,512"
CURVE_CONTEXT = "256"
CURVE_REPEATS = 15
ADVISE_DRAFTERS = ("ngram", "suffix", "skip")
ADVISE_SECONDS = 60.0  # for each workload

SHAPE_DRAFTERS = ("suffix", "skip:layers=20")
SHAPE_WORKLOADS = ("code", "dialogue")
SHAPE_TOKENS = 96
TREE_WORKLOADS = ("code", "arithmetic", "dialogue")
SHAPE_DEPTHS = "1,2,3,4,6,8,12,15"
SHAPE_WIDTHS = "1,2,3,4"
SHAPE_NODES = "3,7,15,31"
PHASES_DRAFTERS = ("ngram", "suffix", "skip:layers=20")
PHASES_WORKLOADS = ("code", "dialogue")
PHASES_TOKENS = 96
PHASES_DEPTHS = "1,2,4,8"

BATCHES = (1, 2, 4, 8, 16, 32, 64)
BATCH_WORKLOADS = ("code", "arithmetic", "dialogue", "summary", "translation", "edit", "writing", "russian")
BATCH_PROMPTS = 12  # of each: six different batches of 16, so many give an interval
BATCH_TOKENS = 64
CONTEXTS = (256, 1024, 2048, 4096, 8192, 16384, 32768)
CONTEXT_PIECES = 6  # so many give an interval
CONTEXT_TOKENS = 64
TEMPERATURES = (0.0, 0.3, 0.6, 0.8, 1.0, 1.2, 1.5)
SWEEP_WORKLOADS = ("code", "dialogue")
SWEEP_PROMPTS = 8
SWEEP_TOKENS = 64
FORMATS = ("f32", "bf16", "int8", "q4", "nf4")
DEPTHS = (2, 4, 8, 15)

LOSSLESS_PARTS = ("identity", "rows", "exact", "sampled")
LOSSLESS_WORKLOADS = ("code", "arithmetic", "dialogue", "summary", "translation", "edit", "writing", "russian")
LOSSLESS_PROMPTS = 12
LOSSLESS_TOKENS = 40
LOSSLESS_BATCH = 10
LOSSLESS_ANSWERS = 40  # of each arm to each prompt whose distribution is tested
BASELINES = ("bare", "transformers", "llama.cpp")  # what `--baseline` takes
SIZE_DRAFTERS = ("ngram", "skip")
