"""Whether transformers runs what our own networks do not: the end of an error message."""

from __future__ import annotations

from collections.abc import Mapping


def elsewhere(config: Mapping[str, object]) -> str:
    """What to do with a model that only runtime hf could run; says so only if the installed transformers knows it."""
    kind, classes = config.get("model_type"), config.get("architectures")
    try:
        from transformers import __version__ as version
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as KNOWN
    except ImportError:
        return "transformers may run it: pip install 'forerun[hf]' and give --runtime hf"
    known = KNOWN.get(kind) if isinstance(kind, str) else None
    if known is None:
        return f"use one of those models; transformers {version}, which --runtime hf runs, has no such language model"
    named = str(classes[0]) if isinstance(classes, list) and classes else None
    if named is None or named in known or named.endswith("Model"):
        return "transformers runs it: give --runtime hf"
    return f"{named[:80]} writes no text: use the model's {known if isinstance(known, str) else known[0]}"
