"""forerun: lossless speculative decoding. The text is exactly the big model's; only the time changes.

    import forerun

    engine = forerun.load("smollm2", drafter="ngram")
    for event in engine.stream(engine.chat("Why is the sky blue?"), max_tokens=200):
        print(event.text, end="", flush=True)

Names are imported when they are first used: torch takes a second that `forerun --help` need not wait for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forerun.assemble import Config, assemble, load
    from forerun.core.errors import BrokenInvariant, CapacityError, ForerunError, LoadError, LossyError, SpecError
    from forerun.core.params import SamplingParams
    from forerun.core.plan import Plan
    from forerun.engine.async_engine import AsyncEngine
    from forerun.engine.engine import Engine
    from forerun.engine.results import Choice, Event, Result, Usage

__version__ = "0.1.0"

_HOMES = {
    "forerun.assemble": ("Config", "assemble", "load"),
    "forerun.core.errors": (
        "BrokenInvariant",
        "CapacityError",
        "ForerunError",
        "LoadError",
        "LossyError",
        "SpecError",
    ),
    "forerun.core.params": ("SamplingParams",),
    "forerun.core.plan": ("Plan",),
    "forerun.engine.async_engine": ("AsyncEngine",),
    "forerun.engine.engine": ("Engine",),
    "forerun.engine.results": ("Choice", "Event", "Result", "Usage"),
}

__all__ = [
    "AsyncEngine",
    "BrokenInvariant",
    "CapacityError",
    "Choice",
    "Config",
    "Engine",
    "Event",
    "ForerunError",
    "LoadError",
    "LossyError",
    "Plan",
    "Result",
    "SamplingParams",
    "SpecError",
    "Usage",
    "__version__",
    "assemble",
    "load",
]


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'forerun' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
