"""Public sets from the Hugging Face hub, by the names that papers use; with the extra `datasets`.

`hub:NAME` takes the set from its usual place, `hub:NAME=WHERE` from a copy: a file (.jsonl, .json, .parquet), a folder
of such, or another repository of the hub with the same fields. What has been fetched once is kept by `datasets` itself,
and its own settings (HF_HOME, HF_HUB_OFFLINE, …) hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.core.errors import LoadError, SpecError, unknown
from forerun.workloads import schemas
from forerun.workloads.prompts import Prompt, Workload
from forerun.workloads.records import Record, at

PREFIX = "hub:"
FORMS = {".jsonl": "json", ".json": "json", ".parquet": "parquet"}
MOST = 2000
"""Records of a set that become prompts, evenly spread: ShareGPT has tens of thousands, and nobody measures them all."""


@dataclass(frozen=True, slots=True)
class PublicSet:
    """Where a set lies and how its records are read."""

    repo: str
    split: str
    prompt: Callable[[Record, int], Prompt | None]
    config: str | None = None
    files: tuple[str, ...] = ()
    """Files of the repository, where it says nothing about its splits itself."""
    revision: str | None = None


# One task of each kind that LongBench has. Its repository holds a script, which `datasets` no longer runs; these files
# are those that the hub itself made with it.
_LONG = ("qasper", "hotpotqa", "gov_report", "triviaqa", "passage_retrieval_en", "lcc")
SETS = {
    "humaneval": PublicSet("openai/openai_humaneval", "test", schemas.humaneval),
    "gsm8k": PublicSet("openai/gsm8k", "test", schemas.gsm8k, config="main"),
    "mt_bench": PublicSet("HuggingFaceH4/mt_bench_prompts", "train", schemas.mt_bench),
    "sharegpt": PublicSet(
        "anon8231489123/ShareGPT_Vicuna_unfiltered",
        "train",
        schemas.sharegpt,
        files=("ShareGPT_V3_unfiltered_cleaned_split.json",),
    ),
    "longbench": PublicSet(
        "THUDM/LongBench",
        "test",
        schemas.longbench,
        files=tuple(f"{task}/test/*.parquet" for task in _LONG),
        revision="refs/convert/parquet",
    ),
}


def public(spec: str) -> Workload:
    """The workload of `hub:NAME` or `hub:NAME=WHERE`.

    SpecError for an unknown name or where the extra is missing; LoadError where the set cannot be had, or has other
    fields. Of more than MOST records that many are taken.
    """
    name, given, where = spec.removeprefix(PREFIX).partition("=")
    if name not in SETS:
        raise unknown("public set", name, SETS)
    if given and not where:
        raise SpecError(f"{spec} names no copy: write {PREFIX}{name}=FILE_OR_REPOSITORY, or {PREFIX}{name} alone")
    chosen = SETS[name]
    try:
        rows = _copy(where, chosen.split) if where else _usual(chosen)
    except ImportError:
        raise SpecError(f'{spec} needs the package datasets: pip install "forerun[datasets]"') from None
    except (LoadError, SpecError):
        raise
    except Exception as error:  # whatever datasets and what it rests on raise: they have dozens of kinds
        reason = next(iter(str(error.__cause__ or error).splitlines()), "") or type(error).__name__
        raise LoadError(
            f"cannot load {spec} from {where or chosen.repo}: {reason[:200].rstrip('.')}; without a network give a "
            f"copy, {PREFIX}{name}=FILE"
        ) from error
    return Workload(name, _prompts(rows, chosen, spec), f"{where or chosen.repo} ({chosen.split})")


def _prompts(rows: Any, chosen: PublicSet, spec: str) -> tuple[Prompt, ...]:
    """Prompts of a loaded set, named by their places in the whole of it."""
    prompts = []
    places: Iterable[int] = range(len(rows))
    if len(rows) > MOST:
        places = [i * len(rows) // MOST for i in range(MOST)]
    for place in places:
        with at(f"record {place} of {spec}"):
            prompts.append(chosen.prompt(rows[place], place))
    kept = tuple(prompt for prompt in prompts if prompt)
    if not kept:
        raise LoadError(f"{spec} has no prompts in its {len(rows)} records")
    return kept


def _usual(chosen: PublicSet) -> Any:
    """The set's records, from the hub or from what was fetched before."""
    from datasets import load_dataset

    files = {chosen.split: list(chosen.files)} if chosen.files else None
    return load_dataset(chosen.repo, chosen.config, data_files=files, split=chosen.split, revision=chosen.revision)


def _copy(where: str, split: str) -> Any:
    """The records of a copy: of the split if it has that one, of the only one otherwise."""
    from datasets import load_dataset

    path = Path(where)
    if path.is_file():
        if path.suffix.lower() not in FORMS:
            raise SpecError(f"a copy of a public set ends in {', '.join(FORMS)}, got {path.name!r}")
        loaded = load_dataset(FORMS[path.suffix.lower()], data_files=str(path))
    elif path.is_dir() or _looks_like_repo(where):
        loaded = load_dataset(where)
    else:
        raise LoadError(f"{where} is no file, no folder and no repository of the hub (OWNER/NAME)")
    if split in loaded:
        return loaded[split]
    if len(loaded) > 1:
        raise LoadError(f"{where} has the splits {', '.join(loaded)}, and {split!r} is not one of them: give one file")
    return next(iter(loaded.values()))


def _looks_like_repo(where: str) -> bool:
    owner, _, name = where.partition("/")
    return bool(owner and name) and "/" not in name and not where.startswith((".", "~"))
