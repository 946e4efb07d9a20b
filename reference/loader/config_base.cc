// The fields of transformers' base class (PretrainedConfig), which the config.json of every family may have.
#include <string_view>

#include "reference/loader/config_parts.h"

namespace verbatim::reference {
namespace {

// With other values another model is computed.
void read_base_switches(ConfigFields& fields) {
    for (const std::string_view key : {"is_encoder_decoder", "add_cross_attention", "tie_encoder_decoder"})
        fields.only_flag(key, false);
    fields.only_null("cross_attention_hidden_size");
    fields.only_null("quantization_config");
    fields.only_empty("pruned_heads");
}

// Of generate(). Requests say how they are sampled; what forbids or forces tokens in every answer is not supported.
void read_base_generation(ConfigFields& fields) {
    for (const std::string_view key :
         {"bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id", "forced_eos_token_id",
          "exponential_decay_length_penalty"})
        fields.only_empty(key);
    fields.harmless({"max_length",
                     "min_length",
                     "do_sample",
                     "early_stopping",
                     "num_beams",
                     "num_beam_groups",
                     "diversity_penalty",
                     "temperature",
                     "top_k",
                     "top_p",
                     "typical_p",
                     "repetition_penalty",
                     "length_penalty",
                     "no_repeat_ngram_size",
                     "encoder_no_repeat_ngram_size",
                     "num_return_sequences",
                     "output_scores",
                     "return_dict_in_generate",
                     "remove_invalid_values",
                     "use_cache",
                     "num_logits_to_keep"});
}

}  // namespace

void read_base_class(ConfigFields& fields) {
    read_base_switches(fields);
    read_base_generation(fields);
    // What a checkpoint is called and how it is stored.
    fields.harmless({"architectures", "model_type", "_name_or_path", "name_or_path", "model_name", "_commit_hash",
                     "auto_map", "custom_pipelines", "transformers_version", "torch_dtype", "dtype", "use_bfloat16"});
    // How transformers runs it: which of its kernels, what else it returns.
    fields.harmless({"_attn_implementation", "_attn_implementation_autoset", "_attn_implementation_internal",
                     "attn_implementation", "_experts_implementation", "return_dict", "use_return_dict",
                     "output_attentions", "output_hidden_states", "torchscript", "tf_legacy_loss",
                     "gradient_checkpointing", "chunk_size_feed_forward", "is_decoder"});
    // Tokens by their meaning, and text around a pipeline's input.
    fields.harmless({"bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id",
                     "decoder_start_token_id", "tokenizer_class", "prefix"});
    // Of training and of heads that classify.
    fields.harmless({"attention_dropout", "hidden_dropout", "embd_pdrop", "resid_pdrop", "initializer_range",
                     "init_method", "finetuning_task", "task_specific_params", "problem_type", "id2label", "label2id",
                     "num_labels"});
}

}  // namespace verbatim::reference
