"""What a head is, whatever file it came from: sizes, switches, and the tensors that these ask for.

Two designs. A *recurrent* head (EAGLE-1, EAGLE-3, P-EAGLE, MTP) is a decoder layer or a few: slot i holds the target's
feature of token i and the embedding of token i + 1, and gives a guess at token i + 2 and a feature that the next step
reads in place of the target's. A *Medusa* head has a residual block and a vocabulary end for each distance, over one
feature, and no memory.

Tensors have one set of names here, those of vllm-project/speculators where it has one; the readers and writers of
`formats` translate. Shapes are those of torch's Linear.weight, [out, in].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from forerun.arch import LAYER, QK_NORM
from forerun.core.errors import SpecError, unknown
from forerun.models.layer import shapes
from forerun.models.rope import Rope

Kind = Literal["eagle", "eagle3", "p-eagle", "mtp", "medusa"]
RECURRENT: tuple[Kind, ...] = ("eagle", "eagle3", "p-eagle", "mtp")
KINDS: tuple[Kind, ...] = (*RECURRENT, "medusa")
FORMATS = ("q4", "int8", "bf16", "f32")
"""What a head's matrices may be in memory on the native runtime; q4: the vocabulary's end in 4 bits, the rest int8."""

NAMES = LAYER | QK_NORM
"""Of a recurrent head's layers, which are Llama's or Qwen3's."""

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentConfig:
    """A head that reads (feature, embedding) and hands its own feature on.

    `taps` are the target layers whose inputs it reads (EAGLE-3, P-EAGLE); () is the output of the target's final norm.
    """

    kind: Kind
    vocab_size: int
    """The target's, padding included."""
    target_size: int
    """Width of one of the target's states."""
    draft_vocab: int
    """Words that it can guess; equal to vocab_size if all."""
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    rope: Rope
    max_len: int
    """Positions that it was made for; its rotations go on past them."""
    taps: tuple[int, ...] = ()
    layers: int = 1
    windows: tuple[int | None, ...] = ()
    """Tokens that each of its layers sees, itself included; None, and () for every layer, are all."""
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    fc_bias: bool = False
    qk_norm: bool = False
    norm_before_residual: bool = False
    """EAGLE-3: what attention is added to is the feature after its norm."""
    norm_before_fc: bool = False
    """EAGLE-3: one norm over all taps before they are joined."""
    fc_norm: bool = False
    """EAGLE-3: a norm for each tap before they are joined."""
    norm_output: bool = False
    """The feature handed on is the one after the final norm: EAGLE-3.1, and MTP in all published forms."""
    own_embedding: bool = False
    mask_id: int | None = None
    """P-EAGLE: the token that stands where none is known yet."""
    own_mask: bool = True
    """P-EAGLE without an embedding of its own: the mask has one, else it is the target's of `mask_id`."""

    def __post_init__(self) -> None:
        if self.kind not in RECURRENT:
            raise unknown("recurrent head", self.kind, RECURRENT)
        if not 1 <= self.draft_vocab <= self.vocab_size:
            raise SpecError(
                f"draft_vocab is {self.draft_vocab}, the target knows {self.vocab_size} words: allowed 1 to that"
            )
        if self.heads % self.kv_heads:
            raise SpecError(f"kv_heads {self.kv_heads} must divide heads {self.heads}")
        if self.windows and len(self.windows) != self.layers:
            raise SpecError(f"there are {len(self.windows)} windows for {self.layers} layers: one for each, or none")
        if self.norm_before_fc and self.fc_norm:
            raise SpecError("norm_before_fc and fc_norm are two ways to norm the taps: only one may be on")
        if self.kind in ("eagle", "mtp") and self.hidden_size != self.target_size:
            raise SpecError(
                f"its states stand in for the target's: hidden_size {self.hidden_size} must be {self.target_size}"
            )
        if self.kind in ("eagle3", "p-eagle") and not self.taps:
            raise SpecError(f"{self.kind} reads the inputs of some target layers: taps must name them")
        if self.kind == "p-eagle" and self.mask_id is None:
            raise SpecError("p-eagle needs mask_id, the token that stands where none is known yet")

    @property
    def features(self) -> int:
        """Width of what it reads of the target for one token."""
        return self.target_size * max(1, len(self.taps))

    def window(self, layer: int) -> int | None:
        """Tokens that this layer sees; None is all."""
        return self.windows[layer] if self.windows else None

    @property
    def reduced(self) -> bool:
        """Whether it knows fewer words than the target."""
        return self.draft_vocab != self.vocab_size

    @property
    def normed(self) -> bool:
        """Whether it has a final norm and a vocabulary end of its own (EAGLE-1 uses the target's, without a norm)."""
        return self.kind != "eagle"

    @property
    def ends(self) -> tuple[str, ...]:
        """Names of its vocabulary ends, [draft_vocab, hidden_size] each; without them the target's serves."""
        return ("lm_head.weight",)

    def shapes(self) -> Shapes:
        """Every tensor but the vocabulary's end, with its shape."""
        h = self.hidden_size
        own: Shapes = {"embed_tokens.weight": (self.vocab_size, h)} if self.own_embedding else {}
        own |= self._joining()
        for i in range(self.layers):
            own |= self._layer(f"layers.{i}.", i)
        if self.normed:
            own["norm.weight"] = (h,)
        return own

    def _joining(self) -> Shapes:
        h = self.hidden_size
        if self.kind == "eagle":
            return {"fc.weight": (h, h + self.features), **({"fc.bias": (h,)} if self.fc_bias else {})}
        if self.kind == "mtp":
            norms: Shapes = {"enorm.weight": (h,), "hnorm.weight": (self.features,)}
            return {"fc.weight": (h, h + self.features), **norms}
        found: Shapes = {"fc.weight": (h, self.features), **({"fc.bias": (h,)} if self.fc_bias else {})}
        if self.norm_before_fc:
            found["input_norm.weight"] = (self.features,)
        if self.fc_norm:
            found |= {f"fc_norm.{i}.weight": (self.target_size,) for i in range(len(self.taps))}
        if self.kind == "p-eagle":
            found["mask_hidden"] = (self.features,)
            if self.own_mask and not self.own_embedding:
                found["mask_embedding"] = (h,)
        return found

    def _layer(self, at: str, i: int) -> Shapes:
        joins = i == 0 and self.kind in ("eagle3", "p-eagle")
        found: Shapes = {f"{at}hidden_norm.weight": (self.hidden_size,)} if joins else {}
        for role, (shape, biased) in shapes(self, NAMES if self.qk_norm else LAYER).items():
            stem, (out, *columns) = f"{at}{NAMES[role][0]}", shape
            if role == "attention_norm" and not i and self.kind == "eagle":
                continue
            if joins and role in ("q", "k", "v"):
                columns = [2 * self.hidden_size]
            found[f"{stem}.weight"] = (out, *columns)
            if biased:
                found[f"{stem}.bias"] = (out,)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class MedusaConfig:
    """Heads over the output of the target's final norm: head i guesses at distance i + 2 from the token it is of."""

    vocab_size: int
    target_size: int
    draft_vocab: int
    count: int
    """Heads."""
    blocks: int = 1
    """Residual blocks of each."""
    bias: bool = True
    shared_end: bool = False
    """One vocabulary end for all heads."""
    kind: Kind = "medusa"
    taps: tuple[int, ...] = ()

    @property
    def hidden_size(self) -> int:
        """Width inside the heads."""
        return self.target_size

    @property
    def features(self) -> int:
        """Width of what it reads of the target for one token."""
        return self.target_size

    @property
    def reduced(self) -> bool:
        """Whether it knows fewer words than the target."""
        return self.draft_vocab != self.vocab_size

    def shapes(self) -> Shapes:
        """Every tensor but the vocabulary ends, with its shape."""
        h, found = self.target_size, Shapes()
        for i in range(self.count):
            for j in range(self.blocks):
                found[f"heads.{i}.blocks.{j}.weight"] = (h, h)
                if self.bias:
                    found[f"heads.{i}.blocks.{j}.bias"] = (h,)
        return found

    @property
    def ends(self) -> tuple[str, ...]:
        """Names of its vocabulary ends, [draft_vocab, hidden_size] each; without them the target's serves for all."""
        return ("lm_head.weight",) if self.shared_end else tuple(f"heads.{i}.lm_head.weight" for i in range(self.count))


HeadConfig = RecurrentConfig | MedusaConfig
