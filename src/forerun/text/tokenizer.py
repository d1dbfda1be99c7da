"""A tokenizer with the exact bytes of every id beside it.

Encoding is the `tokenizers` library's. Decoding is ours: a text is the bytes of its tokens, joined and
read as UTF-8, so that text streamed token by token is the same as text decoded at the end, and a token
that is half a character has bytes to report. Special tokens have no bytes.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import accumulate, pairwise
from threading import Lock
from typing import Any

import tokenizers

from forerun.core.errors import ForerunError, LoadError, SpecError
from forerun.text.marks import marked, pattern, spare

CONTROL = re.compile(r"<\|.+\|>|<｜.+｜>", re.S)  # tokens of this form are control tokens whatever their files say


@dataclass(frozen=True, slots=True)
class Settings:
    """What a tokenizer's files say about it, apart from its vocabulary.

    `specials` are the template's variables (bos_token, eos_token, unk_token, pad_token), those that exist.
    `strip_space`: a leading space of a decoded text is the tokenizer's own and is dropped (SentencePiece).
    """

    bos_id: int | None = None
    eos_id: int | None = None
    unk_id: int | None = None
    pad_id: int | None = None
    eos_ids: frozenset[int] = frozenset()
    add_bos: bool = False
    strip_space: bool = False
    chat_template: str | None = None
    specials: Mapping[str, str] = field(default_factory=dict)


class Tokenizer:
    """Ids, text and bytes of one vocabulary; immutable, safe to share between threads."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        pieces: Sequence[bytes],
        special: Mapping[int, str],
        settings: Settings,
        notes: Sequence[str] = (),
    ) -> None:
        """`pieces[i]` are the bytes of id i; `special` maps special ids to their names in prompts; `notes` tell what is
        odd in its files."""
        self._backend = backend
        self.notes = tuple(notes)
        self._names = dict(special)
        self._pieces = tuple(b"" if i in special else piece for i, piece in enumerate(pieces))
        self._settings = settings
        self.special: frozenset[int] = frozenset(special)
        added = {i: entry.content for i, entry in backend.get_added_tokens_decoder().items()}
        kept = {i: name for i, name in added.items() if i in special or CONTROL.fullmatch(name)}
        self._control_ids = {name: i for i, name in {**self._names, **kept}.items() if name}
        self.controls: frozenset[str] = frozenset(self._control_ids)
        """Names of the control tokens: special ones, and those that look like them."""
        self.added: re.Pattern[str] = pattern({*added.values(), *self.controls})
        """Finds every added token in a text."""
        self._marked: tuple[str, tokenizers.Tokenizer, dict[int, int]] | None = None
        self._lock = Lock()
        self._fingerprint = _digest(self.identity(i) for i in range(self.size))

    def state(self) -> dict[str, Any]:
        """All of it as JSON values, for `from_state`."""
        with shield(lambda why: LoadError(f"this tokenizer cannot be written down ({why})")):
            backend = self._backend.to_str()
        settings = asdict(self._settings)
        return {
            "backend": backend,
            "lengths": [len(piece) for piece in self._pieces],
            "pieces": base64.b64encode(b"".join(self._pieces)).decode("ascii"),
            "special": {str(i): name for i, name in self._names.items()},
            "settings": {**settings, "eos_ids": sorted(self._settings.eos_ids), "specials": dict(settings["specials"])},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Tokenizer":
        """The tokenizer whose `state` this is, the same in all it does; LoadError if it is none."""
        try:
            joined = base64.b64decode(state["pieces"], validate=True)
            ends = accumulate(state["lengths"], initial=0)
            pieces = [joined[start:end] for start, end in pairwise(ends)]
            special = {int(i): name for i, name in state["special"].items()}
            settings = Settings(**{**state["settings"], "eos_ids": frozenset(state["settings"]["eos_ids"])})
            backend = load_backend(state["backend"], "a stored tokenizer")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LoadError(f"a stored tokenizer is damaged ({error!r}): delete the packed model") from error
        return cls(backend, pieces, special, settings)

    @property
    def size(self) -> int:
        """Number of real ids; a model may have more rows, which are padding and stand for nothing."""
        return len(self._pieces)

    @property
    def bos_id(self) -> int | None:
        """Begin-of-text id, if there is one."""
        return self._settings.bos_id

    @property
    def eos_id(self) -> int | None:
        """The main end-of-text id, if there is one."""
        return self._settings.eos_id

    @property
    def eos_ids(self) -> frozenset[int]:
        """Every id the tokenizer's files name as an end; join with the checkpoint's own."""
        mine = self._settings
        return mine.eos_ids if mine.eos_id is None else mine.eos_ids | {mine.eos_id}

    @property
    def unk_id(self) -> int | None:
        """Id for what cannot be encoded, if there is one."""
        return self._settings.unk_id

    @property
    def pad_id(self) -> int | None:
        """Padding id, if there is one."""
        return self._settings.pad_id

    @property
    def chat_template(self) -> str | None:
        """The model's Jinja chat template, if it has one."""
        return self._settings.chat_template

    @property
    def specials(self) -> Mapping[str, str]:
        """Template variables bos_token, eos_token, unk_token, pad_token: those that exist."""
        return self._settings.specials

    @property
    def strip_space(self) -> bool:
        """Whether one leading space of a decoded text is dropped."""
        return self._settings.strip_space

    @property
    def fingerprint(self) -> str:
        """16 hex digits over the bytes of all real ids (the names, for special ones)."""
        return self._fingerprint

    def control_id(self, name: str) -> int | None:
        """The id of a control token by its name."""
        return self._control_ids.get(name)

    def encode(self, text: str, *, bos: bool, mark: str | None = None) -> list[int]:
        """Ids of a text; special tokens written in it become their ids.

        `bos`: put the begin-of-text id first if this tokenizer wants one and the text has none. Rendered
        chat templates are encoded with bos=False: they write their own. With a `mark`, names of
        control tokens are text unless they carry it behind their first character. SpecError if it cannot be encoded.
        """
        ids = self._ids(self._backend, text) if mark is None else self._marked_ids(text, mark)
        first = self.bos_id
        if bos and self._settings.add_bos and first is not None and ids[:1] != [first]:
            return [first, *ids]
        return ids

    def encode_text(self, text: str, *, bos: bool) -> list[int]:
        """Ids of a text in which nothing is a control token, whatever it holds."""
        if not self.added.search(text):
            return self.encode(text, bos=bos)
        return self.encode(text, bos=bos, mark=spare(text)[0])

    def _ids(self, backend: tokenizers.Tokenizer, text: str) -> list[int]:
        with shield(lambda why: SpecError(f"this text cannot be encoded ({why}); it must be valid Unicode")):
            return list(backend.encode(text, add_special_tokens=False).ids)

    def _marked_ids(self, text: str, mark: str) -> list[int]:
        """A second tokenizer, made when it is first needed, knows the control tokens by their marked names."""
        with self._lock:
            if self._marked is None or self._marked[0] != mark:
                self._marked = (mark, *self._with_marks(mark))
            _, backend, back = self._marked
        ids = [back.get(i, i) for i in self._ids(backend, text)]
        control = set(self._control_ids.values()) - {self.unk_id}
        if sum(i in control for i in ids) > text.count(mark):
            raise SpecError("this tokenizer cannot tell a control token's name in a text from the token: leave it out")
        return ids

    def _with_marks(self, mark: str) -> tuple[tokenizers.Tokenizer, dict[int, int]]:
        """The backend with marked names, and its ids of added tokens to ours."""
        state = json.loads(self._backend.to_str())
        for entry in state["added_tokens"]:
            if entry["content"] in self.controls:
                entry["content"] = marked(entry["content"], mark)
        backend = load_backend(json.dumps(state), "this tokenizer with marked control tokens")
        back: dict[int, int] = {}
        for i, entry in self._backend.get_added_tokens_decoder().items():
            name = marked(entry.content, mark) if entry.content in self.controls else entry.content
            back[int(backend.token_to_id(name) or 0)] = i
        return backend, back

    def decode(self, ids: Iterable[int]) -> str:
        """The text of these ids, special ones skipped; broken UTF-8 becomes U+FFFD."""
        raw = b"".join(self.token_bytes(i) for i in ids)
        if self.strip_space and raw.startswith(b" "):
            raw = raw[1:]
        return raw.decode("utf-8", errors="replace")

    def token_bytes(self, token: int) -> bytes:
        """The raw bytes of one id; empty for special ids and for padding rows."""
        return self._pieces[token] if 0 <= token < len(self._pieces) else b""

    def name(self, token: int) -> str:
        """The name of a special token; empty for others."""
        return self._names.get(token, "")

    def shown(self, token: int) -> str:
        """A token as prompts write it."""
        return self.name(token) or self.token_bytes(token).decode("utf-8", errors="replace")

    def spaced_after(self, name: str) -> bool:
        """Whether this tokenizer writes a space of its own between a special token and the text behind it."""
        return b"".join(map(self.token_bytes, self.encode(f"{name}a", bos=False))).startswith(b" ")

    def differences(self, other: "Tokenizer") -> str | None:
        """None if both give every real id the same bytes, else a sentence naming the first id that differs."""
        if self.fingerprint == other.fingerprint:
            return None
        for i in range(min(self.size, other.size)):
            mine, theirs = self.identity(i), other.identity(i)
            if mine != theirs:
                return f"id {i} is {_show(mine)} in one tokenizer and {_show(theirs)} in the other"
        short, long = sorted((self, other), key=lambda t: t.size)
        extra = _show(long.identity(short.size))
        return f"one tokenizer has {short.size} ids, the other {long.size}: id {short.size} is {extra} there"

    def identity(self, token: int) -> bytes:
        """What an id is: its bytes, or a special one's name; empty for ids that are none."""
        name = self._names.get(token)
        return self.token_bytes(token) if name is None else name.encode("utf-8", "surrogatepass")

    def ordinary(self, token: int) -> bool:
        """Whether an id is a token of the vocabulary itself: not special, and not added to it."""
        return bool(self.token_bytes(token)) and token not in self._backend.get_added_tokens_decoder()


def load_backend(text: str, where: str) -> tokenizers.Tokenizer:
    """A `tokenizers.Tokenizer` from its JSON without truncation or padding; LoadError naming `where`."""
    with shield(lambda why: LoadError(f"{where} is not a usable tokenizer ({why}); download it again")):
        backend = tokenizers.Tokenizer.from_str(text)
        backend.no_truncation()
        backend.no_padding()
    return backend


@contextmanager
def shield(translate: Callable[[BaseException], ForerunError]) -> Iterator[None]:
    """Turns whatever the tokenizers library raises into an error of ours; its panics are no `Exception`."""
    try:
        yield
    except (ForerunError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise translate(error) from error


def _show(raw: bytes) -> str:
    try:
        return repr(raw.decode("utf-8"))
    except UnicodeDecodeError:
        return repr(raw)


def _digest(pieces: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(len(piece).to_bytes(4, "little") + piece)
    return digest.hexdigest()[:16]
