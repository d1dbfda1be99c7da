"""Models in repositories of the Hugging Face hub: which of their files are wanted, and nothing else is downloaded.

`owner/name` is a folder of safetensors, or the only GGUF model that there is; of several one is named by its
quantisation, `owner/name:Q4_K_M`, or its file, `owner/name/file.gguf`. Without a network what the hub's cache holds
serves.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from glob import escape
from pathlib import Path, PurePosixPath

from forerun.core.errors import CapacityError, ForerunError, LoadError, SpecError
from forerun.weights.parts import gguf_choices, part_names, part_of

_BESIDE = ("config.json", "generation_config.json", "tokenizer*", "special_tokens_map.json", "chat_template*")
_WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "*.gguf")
_HEAD_PATTERNS = ("head.json", "pytorch_model.bin", "medusa_lm_head.pt")
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_REPOSITORY = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*"
_NAME = re.compile(rf"({_REPOSITORY})(?::([\w.-]+)|/([^:]+\.gguf))?")
_LABEL = re.compile(r"(?:^|[-._])((?:UD-)?(?:I?Q\d|TQ\d|BF16|F16|F32|FP16|MXFP4)\w*)$", re.I)


def hub_name(text: str) -> tuple[str, str] | None:
    """The repository and what of it is wanted (a quantisation, a file, or nothing) if a name is of the hub."""
    match = _NAME.fullmatch(text)
    return (match[1], match[2] or match[3] or "") if match else None


def fetch(repository: str, which: str) -> Path:
    """The model's folder or .gguf file, downloaded if needed. SpecError for a choice that there is not, LoadError if it
    cannot be had or is no model."""
    with _errors(repository):
        names, there = _listed(repository)
        wanted = _wanted(repository, names, which)
        if not wanted and _INDEX in names and _SINGLE not in names:
            index = _download(repository, [_INDEX], there) / _INDEX
            wanted = [_INDEX, *_shards(index)]
        model = [name for name in wanted if name.endswith(".gguf")]
        if not model:
            wanted = [*wanted, *_of_a_folder(names, wanted)]
        folder = _download(repository, wanted, there)
    return folder / model[0] if model else folder


def fetch_head(repository: str) -> Path:
    """A drafting head's folder; pickles too, since heads are published so, and only tensors are read of them."""
    with _errors(repository):
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(repository, allow_patterns=[*_BESIDE, *_WEIGHTS, *_HEAD_PATTERNS]))


def _listed(repository: str) -> tuple[list[str], Path | None]:
    """Names of the repository's files; of what is cached, and where, if the hub cannot be reached."""
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        return list(huggingface_hub.list_repo_files(repository)), None
    except RepositoryNotFoundError:
        raise
    except Exception as error:  # whatever stands between us and the hub
        try:
            patterns = [*_BESIDE, *_WEIGHTS]
            there = Path(huggingface_hub.snapshot_download(repository, allow_patterns=patterns, local_files_only=True))
        except LocalEntryNotFoundError:
            raise error from None
    return sorted(path.relative_to(there).as_posix() for path in there.rglob("*") if path.is_file()), there


def _download(repository: str, names: Sequence[str], there: Path | None) -> Path:
    """Where these files lie; `there` if the hub cannot be reached."""
    from huggingface_hub import snapshot_download

    if there is None:
        return Path(snapshot_download(repository, allow_patterns=[escape(name) for name in names]))
    if missing := [name for name in names if not (there / name).exists()]:
        raise LoadError(
            f"cannot reach the hub for {repository}, and {missing[0]} is not in the cache; check the network"
        )
    return there


def _wanted(repository: str, names: list[str], which: str) -> list[str]:
    """The .gguf files that are wanted; none for a folder of safetensors."""
    choices = gguf_choices(names)
    if which.endswith(".gguf"):
        return _parts(repository, names, which)
    if which:
        fits = [name for name in choices if _is(name, which)]
        exact = [name for name in fits if _label(name).lower() == which.lower()] or fits
        if len(exact) == 1:
            return _parts(repository, names, exact[0])
        raise _choose(repository, exact or choices, f"{len(exact) or 'no'} GGUF models called {which}")
    if any(fnmatch(name, "*.safetensors") and "/" not in name for name in names):
        return []
    if len(choices) > 1:
        raise _choose(repository, choices, f"{len(choices)} GGUF models")
    return _parts(repository, names, choices[0]) if choices else []


def _parts(repository: str, names: list[str], name: str) -> list[str]:
    """All files of the model that a file belongs to, the first first."""
    path = PurePosixPath(name)
    files = [str(path.with_name(part)) for part in part_names(path.name)]
    if name not in names:
        raise _choose(repository, gguf_choices(names), f"no file {name}")
    if missing := [file for file in files if file not in names]:
        raise LoadError(f"{repository} lacks {missing[0]}, a part of the model in {name}: take another one of it")
    return files


def _label(name: str) -> str:
    """A file's quantisation as its name says it; else the name."""
    path = PurePosixPath(name)
    stem = PurePosixPath((part_of(path.name) or (path.stem,))[0]).name
    found = _LABEL.search(stem) or _LABEL.search(path.parent.name)
    return found[1] if found else path.name


def _is(name: str, tag: str) -> bool:
    """Whether a file's name, or its folder's, ends with that quantisation."""
    path = PurePosixPath(name)
    stem = (part_of(path.name) or (path.stem,))[0]
    return any(re.search(rf"(^|[-._]){re.escape(tag)}$", said, re.I) for said in (stem, path.parent.name))


def _choose(repository: str, choices: list[str], what: str) -> SpecError:
    if not choices:
        return SpecError(f"{repository} holds {what}, nor any other .gguf file: take {repository} itself")
    labels = [_label(name) for name in choices]
    unique = len({label.lower() for label in labels}) == len(labels) and not any(l.endswith(".gguf") for l in labels)
    said = f"{repository}:{labels[0]}" if unique else f"{repository}/{choices[0]}"
    shown = labels if unique else choices
    return SpecError(f"{repository} holds {what}: name one, as {said}; there are {', '.join(shown[:40])}")


def _shards(index: Path) -> list[str]:
    from forerun.weights.safetensors import read_json

    listed = read_json(index).get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(shard, str) for shard in listed.values()):
        raise LoadError(f"{index} has no weight_map; download it again")
    return sorted(set(listed.values()))


def _of_a_folder(names: Collection[str], wanted: Sequence[str]) -> list[str]:
    """What a model of safetensors needs of the repository's own folder, beside the shards that are `wanted`."""
    from forerun.weights.recognise import by_names

    top = [name for name in names if "/" not in name]
    weights = [name for name in top if name.endswith(".safetensors") and not fnmatch(name, "adapter*")]
    if not weights or all(fnmatch(name, "consolidated*") for name in weights):
        raise LoadError(f"the repository holds {by_names(top) or 'no weights that can be read'}")
    weights = [name for name in weights if not fnmatch(name, "consolidated*")]
    beside = [name for name in top if any(fnmatch(name, pattern) for pattern in _BESIDE)]
    if wanted:
        return beside
    return [*beside, *([_SINGLE] if _SINGLE in weights else weights)]


@contextmanager
def _errors(repository: str) -> Iterator[None]:
    """The hub's errors as ours, in one line."""
    from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        yield
    except ForerunError:
        raise
    except GatedRepoError as error:
        raise LoadError(f"{repository} is gated: accept its terms on the hub and log in") from error
    except RepositoryNotFoundError as error:
        raise LoadError(f"{repository} is neither a local path nor a repository you may read") from error
    except LocalEntryNotFoundError as error:
        raise LoadError(f"cannot reach the hub for {repository}; check the network, or pass a local folder") from error
    except OSError as error:
        if error.errno == 28:
            raise CapacityError(f"the disk is full while downloading {repository}; free some space") from error
        raise LoadError(f"cannot download {repository}: {str(error).splitlines()[0]}; try again") from error
    except Exception as error:  # httpx, requests and xet each raise their own
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise LoadError(f"cannot download {repository}: {reason}; check the network, or pass a local folder") from error
