"""Writes a checkpoint folder of Granite's hybrid family as GGUF, as llama.cpp's converter does (docs/audit.md has the
use). A folder without a tokenizer gives a file without one.

    python3 to_gguf.py FOLDER OUT.gguf [F32|F16|BF16|Q8_0|Q4_0|mixed]        (needs the packages gguf and numpy)

TYPE is that of the matrices; mixed: one type after another.
"""
import json
import os
import struct
import sys

import gguf
import numpy as np


def read_tensors(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    tensors = {}
    for name, about in header.items():
        if name == "__metadata__":
            continue
        begin, end = about["data_offsets"]
        bits = np.frombuffer(data[begin:end], dtype=np.uint16).astype(np.uint32) << 16
        tensors[name] = bits.view(np.float32).reshape(about["shape"])
    return tensors


# The rows of a head's two halves alternate in llama.cpp's files.
def alternate(values, heads):
    return values.reshape(heads, 2, -1, values.shape[-1]).swapaxes(1, 2).reshape(values.shape)


MIXED = ["Q8_0", "Q4_0", "BF16", "F16", "Q4_0", "Q8_0", "F32", "Q8_0"]


def main(folder, out, kind="F32"):
    config = json.load(open(os.path.join(folder, "config.json")))
    tensors = read_tensors(os.path.join(folder, "model.safetensors"))
    kinds = config["layer_types"]
    w = gguf.GGUFWriter(out, "granitehybrid")
    w.add_name("tiny-python")
    w.add_block_count(len(kinds))
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_feed_forward_length(config["shared_intermediate_size"])
    w.add_head_count(config["num_attention_heads"])
    w.add_head_count_kv([config["num_key_value_heads"] if kind == "attention" else 0 for kind in kinds])
    head_dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    w.add_key_length(head_dim)
    w.add_value_length(head_dim)
    w.add_rope_dimension_count(head_dim)
    w.add_rope_scaling_finetuned(False)  # no positions
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_vocab_size(config["vocab_size"])
    w.add_attention_scale(config["attention_multiplier"])
    w.add_embedding_scale(config["embedding_multiplier"])
    w.add_residual_scale(config["residual_multiplier"])
    w.add_logit_scale(config["logits_scaling"])
    w.add_ssm_conv_kernel(config["mamba_d_conv"])
    w.add_ssm_state_size(config["mamba_d_state"])
    w.add_ssm_group_count(config["mamba_n_groups"])
    w.add_ssm_inner_size(config["mamba_n_heads"] * config["mamba_d_head"])
    w.add_ssm_time_step_rank(config["mamba_n_heads"])

    if os.path.exists(os.path.join(folder, "tokenizer.json")):
        add_tokenizer(w, folder, config["vocab_size"])
    num_matrices = 0

    def add_matrix(name, values):
        nonlocal num_matrices
        type = gguf.GGMLQuantizationType[MIXED[num_matrices % len(MIXED)] if kind == "mixed" else kind]
        num_matrices += 1
        values = np.ascontiguousarray(values)
        w.add_tensor(name, gguf.quants.quantize(values, type), raw_dtype=type)

    names = {"input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "ffn_norm.weight",
             "mamba.in_proj.weight": "ssm_in.weight", "mamba.conv1d.bias": "ssm_conv1d.bias",
             "mamba.dt_bias": "ssm_dt.bias", "mamba.out_proj.weight": "ssm_out.weight",
             "self_attn.q_proj.weight": "attn_q.weight", "self_attn.k_proj.weight": "attn_k.weight",
             "self_attn.v_proj.weight": "attn_v.weight", "self_attn.o_proj.weight": "attn_output.weight",
             "shared_mlp.output_linear.weight": "ffn_down.weight"}
    heads = {"self_attn.q_proj.weight": config["num_attention_heads"],
             "self_attn.k_proj.weight": config["num_key_value_heads"]}
    add_matrix("token_embd.weight", tensors.pop("model.embed_tokens.weight"))
    w.add_tensor("output_norm.weight", tensors.pop("model.norm.weight"))
    if "lm_head.weight" in tensors:
        add_matrix("output.weight", tensors.pop("lm_head.weight"))
    for name, values in tensors.items():
        _, _, layer, rest = name.split(".", 3)
        block = f"blk.{layer}."
        if rest in heads:
            values = alternate(values, heads[rest])
        if rest in names and values.ndim == 2:
            add_matrix(block + names[rest], values)
        elif rest in names:
            w.add_tensor(block + names[rest], np.ascontiguousarray(values))
        elif rest == "mamba.A_log":
            w.add_tensor(block + "ssm_a", -np.exp(values).reshape(-1, 1))
        elif rest == "mamba.D":
            w.add_tensor(block + "ssm_d", values.reshape(-1, 1))
        elif rest == "mamba.conv1d.weight":
            w.add_tensor(block + "ssm_conv1d.weight", np.ascontiguousarray(values[:, 0, :]))
        elif rest == "mamba.norm.weight":
            w.add_tensor(block + "ssm_norm.weight", values.reshape(config["mamba_n_groups"], -1))
        elif rest == "shared_mlp.input_linear.weight":
            half = values.shape[0] // 2
            add_matrix(block + "ffn_gate.weight", values[:half])
            add_matrix(block + "ffn_up.weight", values[half:])
        else:
            raise SystemExit(f"{name}: unknown tensor")
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def add_tokenizer(w, folder, vocab_size):
    tokenizer = json.load(open(os.path.join(folder, "tokenizer.json")))
    template = json.load(open(os.path.join(folder, "tokenizer_config.json")))["chat_template"]
    vocab = {id: text for text, id in tokenizer["model"]["vocab"].items()}
    special = {one["id"]: one["content"] for one in tokenizer["added_tokens"]}
    tokens = [special.get(i, vocab.get(i, f"[unused{i}]")) for i in range(vocab_size)]
    types = [gguf.TokenType.CONTROL if i in special else gguf.TokenType.NORMAL if i in vocab else gguf.TokenType.UNUSED
             for i in range(vocab_size)]
    merges = [one if isinstance(one, str) else " ".join(one) for one in tokenizer["model"]["merges"]]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("llama-bpe")
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges(merges)
    w.add_bos_token_id(0)
    w.add_eos_token_id(0)
    w.add_pad_token_id(1)
    w.add_add_bos_token(False)
    w.add_chat_template(template)


main(*sys.argv[1:])
