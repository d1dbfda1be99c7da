"""No option of a head's config is ignored: what a reader did not look at must be known to change nothing.

`Heeded` is a config that remembers which of its keys were asked for. `refuse_others` then looks at the rest: `HARMLESS`
keys say nothing about the network (or only what its tensors say better), `NEUTRAL` ones may have the one value that
changes nothing, null is as good as absent, and everything else is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from forerun.core.errors import LoadError
from forerun.models.fields import Fields

_WHOLE = frozenset(("rope_scaling", "rope_parameters"))  # objects whose reader checks them itself

HARMLESS = frozenset((
    "architectures", "auto_map", "model_type", "name_or_path", "transformers_version", "torch_dtype", "dtype",
    "finetuning_task", "language", "license", "quantization", "tokenizer_class", "task_specific_params",
    "problem_type", "id2label", "label2id", "prefix", "base_model_tp_plan", "base_model_pp_plan",
    "base_model_ep_plan", "has_no_defaults_at_init", "keys_to_ignore_at_inference", "attn_implementation",
    "cache_implementation", "gradient_checkpointing", "use_cache", "torchscript", "use_bfloat16", "tf_legacy_loss",
    "pruned_heads", "return_dict", "output_hidden_states", "output_attentions", "chunk_size_feed_forward",
    "is_encoder_decoder", "is_decoder", "add_cross_attention", "cross_attention_hidden_size", "tie_encoder_decoder",
    "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id", "unk_token_id",
    "max_length", "min_length", "max_new_tokens", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
    "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty",
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "output_scores",
    "return_dict_in_generate", "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values",
    "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens", "initializer_range",
    "attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop", "pretraining_tp",
    "attention_bias", "attention_out_bias", "qkv_bias", "mlp_bias", "bias", "eagle_fc_bias", "fusion_bias",
    "use_qk_norm", "num_hidden_layers", "mtp_num_hidden_layers", "num_nextn_predict_layers", "tie_word_embeddings",
    "draft_vocab_size", "truncated_vocab_size", "layer_types", "sliding_window", "use_sliding_window",
    "max_window_layers", "num_local_experts", "num_experts", "num_experts_per_tok", "experts_per_token",
    "moe_intermediate_size", "decoder_sparse_step", "norm_topk_prob", "router_aux_loss_coef", "output_router_logits",
    "mlp_only_layers", "n_routed_experts", "n_shared_experts", "shared_expert_intermediate_size",
    "linear_conv_kernel_dim", "linear_key_head_dim", "linear_num_key_heads", "linear_num_value_heads",
    "linear_value_head_dim", "full_attention_interval", "attn_output_gate", "mamba_ssm_dtype", "vision_config",
    "image_token_id", "image_token_index", "video_token_id", "vision_start_token_id", "vision_end_token_id",
    "speculators_version", "speculators_config", "speculator_config", "embed_requires_grad", "enable_sp_ulysses",
    "transformer_layer_architecture", "num_depths", "para_num", "para_depths", "down_sample_ratio",
    "down_sample_ratio_min", "loss_type", "max_anchors", "max_seq_len", "ttt_steps", "base_model",
    "base_model_name_or_path", "target_model_type", "target_model_name_or_path", "modal_type", "method",
    "num_lookahead_tokens", "num_speculative_tokens", "num_steps", "speculative_tokens",
    "parallel_draft_heads_num_layers", "rope_theta", "rope_parameters",
))  # fmt: skip
"""Keys of transformers, of training and of serving, and those that the tensors settle, as biases, layers and experts;
windows are read for the heads that have layers of their own, and of a whole model's layers elsewhere. Rotations may be
said twice, of which transformers counts one."""

NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "hidden_act": ("silu", "swish"), "is_causal": (True,), "logit_scale": (1,), "logits_scaling": (1,),
    "embedding_multiplier": (1,), "residual_multiplier": (1,), "rope_interleaved": (False,),
    "rope_interleave": (False,), "add_para_norm": (False,), "layernorms": (False,), "use_aux_hidden_state": (True,),
    "use_input_layernorm_in_first_layer": (True,), "use_last_layernorm": (True,), "use_mtp_layernorm": (False,),
    "next_layer_regular": (True,), "parallel_draft_step": (0, 1), "parallel_drafting": (False,),
    "mtp_use_dedicated_embeddings": (False,), "share_lm_head": (True,), "mlp_hidden_act": ("silu", "swish"),
    **dict.fromkeys(("norm_before_fc", "fc_norm", "norm_output", "norm_before_residual"), (False,)),
}  # fmt: skip
"""Options that may only have the value by which nothing is other than what is computed here."""


class Heeded(Mapping[str, object]):
    """A config that remembers which keys were asked for; `at` is where it stands in an outer one."""

    def __init__(self, values: Mapping[str, object], at: str = "") -> None:
        self._values, self._at = values, at
        self._asked: set[str] = set()
        self._inner: dict[str, Heeded] = {}

    def __getitem__(self, key: str) -> object:
        self._asked.add(key)
        value = self._values[key]
        if not isinstance(value, Mapping) or key in _WHOLE:
            return value
        return self._inner.setdefault(key, Heeded(value, f"{self._at}{key}."))

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)

    def others(self) -> Iterator[LoadError]:
        """An error for each key that nobody asked for and that may mean something."""
        read = Fields(self._values, self._at)
        for key, value in self._values.items():
            if key in self._inner:
                yield from self._inner[key].others()
            elif key in self._asked or key in HARMLESS or key.startswith("_") or value is None:
                continue
            elif key not in NEUTRAL:
                yield read.bad(key, "absent", "this option of a head is not known here")
            elif not any(value == fine and isinstance(value, bool) == isinstance(fine, bool) for fine in NEUTRAL[key]):
                allowed = " or ".join(repr(fine) for fine in NEUTRAL[key])
                yield read.bad(key, allowed, "other values of this option are not implemented")


def refuse_others(said: Heeded) -> None:
    """LoadError for the first option that was not looked at and may mean something."""
    for error in said.others():
        raise error
