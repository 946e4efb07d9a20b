"""Writes a checkpoint folder as a GGUF file, as llama.cpp's converter does: a second writer, which shares nothing with
reference/loader/write_gguf.cc. Python's standard library alone.

    python3 make_gguf.py FOLDER OUT.gguf [--fuse-experts]

Matrices are BF16. Families: Qwen3.5 (dense and experts, with mtp.*), Qwen3-Next, Nemotron-H with experts, Bamba.
--fuse-experts: gate and up of an expert in one matrix.
"""
import json
import math
import os
import struct
import sys

U32, I32, F32, BOOL, TEXT, ARRAY = 4, 5, 6, 7, 8, 9
TYPE_F32, TYPE_BF16 = 0, 30
ALIGNMENT = 32


class Tensor:
    """Rows of bytes: of elements of `size` bytes, bf16 or binary32."""

    def __init__(self, shape, rows, size):
        self.shape, self.rows, self.size = list(shape), rows, size

    def floats(self):
        data = b"".join(self.rows)
        if self.size == 4:
            return list(struct.unpack(f"<{len(data) // 4}f", data))
        wide = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
        return list(struct.unpack(f"<{len(wide) // 4}f", wide))

    def with_rows(self, rows):
        return Tensor([len(rows)] + self.shape[1:], rows, self.size)


def of_floats(shape, values):
    data = struct.pack(f"<{len(values)}f", *values)
    step = len(data) // shape[0]
    return Tensor(shape, [data[i:i + step] for i in range(0, len(data), step)], 4)


def stacked(tensors):
    return Tensor([len(tensors)] + tensors[0].shape, [b"".join(one.rows) for one in tensors], tensors[0].size)


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
        shape = about["shape"]
        step = (end - begin) // shape[0]
        size = {"BF16": 2, "F32": 4}[about["dtype"]]
        tensors[name] = Tensor(shape, [data[i:i + step] for i in range(begin, end, step)], size)
    return tensors


def halves_alternate(tensor, heads):
    """[heads, 2, n, ...] -> [heads, n, 2, ...]"""
    n = len(tensor.rows) // heads // 2
    return tensor.with_rows([tensor.rows[(h * 2 + half) * n + i]
                             for h in range(heads) for i in range(n) for half in range(2)])


def tiled(items, keys, values, run):
    """[keys, values / keys, run] -> [values / keys, keys, run]"""
    per_key = values // keys
    return [items[(k * per_key + v) * run + i] for v in range(per_key) for k in range(keys) for i in range(run)]


class Writer:
    def __init__(self, config, tensors, fuse_experts):
        self.config, self.fuse_experts = config, fuse_experts
        predicts = "mtp.layers.0.input_layernorm.weight" in tensors
        self.source = {name: tensor for name, tensor in tensors.items()
                       if not name.startswith("model.visual.") and (predicts or not name.startswith("mtp."))}
        self.tensors, self.keys = {}, []

    def key(self, name, kind, value):
        self.keys.append((name if "." in name and name.startswith("general.") else f"{self.arch}.{name}", kind, value))

    def ints(self, name, values):
        self.key(name, ARRAY, values)

    def add(self, name, tensor):
        """Vectors, conv weights, routers and what acts on one row are F32."""
        is_float = len([d for d in tensor.shape if d != 1]) < 2 or "ssm_conv1d" in name or "ffn_gate_inp" in name
        self.tensors[name] = of_floats(tensor.shape, tensor.floats()) if is_float else tensor

    def take(self, name):
        return self.source.pop(name)

    def norm(self, name, tensor):
        """Of Qwen: 1 + w."""
        self.tensors[name] = of_floats(tensor.shape, [1.0 + w for w in tensor.floats()])

    def decay(self, name, tensor, column):
        values = [-math.exp(a) for a in tensor.floats()]
        self.tensors[name] = of_floats([len(values), 1] if column else [len(values)], values)

    def common(self, arch, eps, layers):
        self.arch, c = arch, self.config
        self.keys.append(("general.architecture", TEXT, arch))
        self.key("block_count", U32, layers)
        self.key("context_length", U32, c["max_position_embeddings"])
        self.key("embedding_length", U32, c["hidden_size"])
        self.key("attention.head_count", U32, c["num_attention_heads"])
        self.key("attention.layer_norm_rms_epsilon", F32, eps)
        self.key("vocab_size", U32, c["vocab_size"])
        self.head_dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
        self.key("attention.key_length", U32, self.head_dim)
        self.key("attention.value_length", U32, self.head_dim)

    # --- Qwen

    def qwen(self, arch, root, layers):
        c = self.config
        rope = c.get("rope_parameters") or c
        predicts = 1 if any(name.startswith("mtp.") for name in self.source) else 0
        self.common(arch, c["rms_norm_eps"], layers + predicts)
        self.key("attention.head_count_kv", U32, c["num_key_value_heads"])
        self.key("rope.freq_base", F32, rope["rope_theta"])
        self.key("rope.dimension_count", U32, int(self.head_dim * rope["partial_rotary_factor"]))
        if arch != "qwen3next":
            self.ints("rope.dimension_sections", [11, 11, 10, 0])
        if "intermediate_size" in c:
            self.key("feed_forward_length", U32, c["intermediate_size"])
        if "num_experts" in c:
            self.key("expert_count", U32, c["num_experts"])
            self.key("expert_used_count", U32, c["num_experts_per_tok"])
            self.key("expert_feed_forward_length", U32, c["moe_intermediate_size"])
            self.key("expert_shared_feed_forward_length", U32, c["shared_expert_intermediate_size"])
        self.key("ssm.conv_kernel", U32, c["linear_conv_kernel_dim"])
        self.key("ssm.state_size", U32, c["linear_key_head_dim"])
        self.key("ssm.group_count", U32, c["linear_num_key_heads"])
        self.key("ssm.time_step_rank", U32, c["linear_num_value_heads"])
        self.key("ssm.inner_size", U32, c["linear_value_head_dim"] * c["linear_num_value_heads"])
        self.key("full_attention_interval", U32, c.get("full_attention_interval", 4))
        if predicts:
            self.key("nextn_predict_layers", U32, 1)
        self.add("token_embd.weight", self.take(root + "embed_tokens.weight"))
        for i in range(layers):
            self.qwen_layer(f"{root}layers.{i}.", f"blk.{i}.", arch)
        self.norm("output_norm.weight", self.take(root + "norm.weight"))
        if "lm_head.weight" in self.source:
            self.add("output.weight", self.take("lm_head.weight"))
        if predicts:
            block = f"blk.{layers}."
            self.add(block + "nextn.eh_proj.weight", self.take("mtp.fc.weight"))
            self.norm(block + "nextn.enorm.weight", self.take("mtp.pre_fc_norm_embedding.weight"))
            self.norm(block + "nextn.hnorm.weight", self.take("mtp.pre_fc_norm_hidden.weight"))
            self.norm(block + "nextn.shared_head_norm.weight", self.take("mtp.norm.weight"))
            self.qwen_layer("mtp.layers.0.", block, arch)

    def qwen_layer(self, root, block, arch):
        self.norm(block + "attn_norm.weight", self.take(root + "input_layernorm.weight"))
        self.norm(block + "post_attention_norm.weight", self.take(root + "post_attention_layernorm.weight"))
        if root + "linear_attn.A_log" in self.source:
            self.delta(root + "linear_attn.", block, arch)
        else:
            for name, to in (("q_proj", "attn_q"), ("k_proj", "attn_k"), ("v_proj", "attn_v"),
                             ("o_proj", "attn_output")):
                self.add(f"{block}{to}.weight", self.take(f"{root}self_attn.{name}.weight"))
            self.norm(block + "attn_q_norm.weight", self.take(root + "self_attn.q_norm.weight"))
            self.norm(block + "attn_k_norm.weight", self.take(root + "self_attn.k_norm.weight"))
        if root + "mlp.gate.weight" in self.source:
            self.qwen_experts(root + "mlp.", block)
        else:
            for name in ("gate", "up", "down"):
                self.add(f"{block}ffn_{name}.weight", self.take(f"{root}mlp.{name}_proj.weight"))

    def qwen_experts(self, root, block):
        self.add(block + "ffn_gate_inp.weight", self.take(root + "gate.weight"))
        gate = self.take(root + "shared_expert_gate.weight")
        self.tensors[block + "ffn_gate_inp_shexp.weight"] = of_floats([gate.shape[1]], gate.floats())
        for name in ("gate", "up", "down"):
            self.add(f"{block}ffn_{name}_shexp.weight", self.take(f"{root}shared_expert.{name}_proj.weight"))
        if root + "experts.gate_up_proj" in self.source:
            both = self.take(root + "experts.gate_up_proj")
            count, rows, columns = both.shape
            half = len(both.rows[0]) // 2
            gate = Tensor([count, rows // 2, columns], [row[:half] for row in both.rows], both.size)
            up = Tensor([count, rows // 2, columns], [row[half:] for row in both.rows], both.size)
            down = self.take(root + "experts.down_proj")
        else:
            gate, up, down = (stacked([self.take(f"{root}experts.{e}.{name}_proj.weight")
                                       for e in range(self.config["num_experts"])]) for name in ("gate", "up", "down"))
        if self.fuse_experts:
            rows = [a + b for a, b in zip(gate.rows, up.rows)]
            self.add(block + "ffn_gate_up_exps.weight",
                     Tensor([gate.shape[0], 2 * gate.shape[1], gate.shape[2]], rows, gate.size))
        else:
            self.add(block + "ffn_gate_exps.weight", gate)
            self.add(block + "ffn_up_exps.weight", up)
        self.add(block + "ffn_down_exps.weight", down)

    def delta(self, root, block, arch):
        c = self.config
        keys, values = c["linear_num_key_heads"], c["linear_num_value_heads"]
        key_dim, value_dim = c["linear_key_head_dim"], c["linear_value_head_dim"]
        first = 2 * keys * key_dim

        def in_turn(items, run):
            return items if arch == "qwen3next" else tiled(items, keys, values, run)

        def with_values_in_turn(tensor):  # rows q, k, v
            return tensor.with_rows(tensor.rows[:first] + in_turn(tensor.rows[first:], value_dim))

        if arch == "qwen3next":
            self.qkvz_and_ba(root, block, keys, key_dim, values // keys * value_dim)
        else:
            self.add(block + "attn_qkv.weight", with_values_in_turn(self.take(root + "in_proj_qkv.weight")))
            z = self.take(root + "in_proj_z.weight")
            self.add(block + "attn_gate.weight", z.with_rows(in_turn(z.rows, value_dim)))
            for name, to in (("b", "ssm_beta"), ("a", "ssm_alpha")):
                part = self.take(f"{root}in_proj_{name}.weight")
                self.add(f"{block}{to}.weight", part.with_rows(in_turn(part.rows, 1)))
        conv = self.take(root + "conv1d.weight")
        self.add(block + "ssm_conv1d.weight", with_values_in_turn(Tensor([conv.shape[0], conv.shape[2]], conv.rows,
                                                                         conv.size)))
        a_log = self.take(root + "A_log")
        self.decay(block + "ssm_a", a_log.with_rows(in_turn(a_log.rows, 1)), column=False)
        dt = self.take(root + "dt_bias")
        self.add(block + "ssm_dt.bias", dt.with_rows(in_turn(dt.rows, 1)))
        self.add(block + "ssm_norm.weight", self.take(root + "norm.weight"))
        out = self.take(root + "out_proj.weight")
        rows = []
        for row in out.rows:
            columns = [row[i:i + out.size] for i in range(0, len(row), out.size)]
            rows.append(b"".join(in_turn(columns, value_dim)))
        self.add(block + "ssm_out.weight", out.with_rows(rows))

    def qkvz_and_ba(self, root, block, keys, key_dim, width):
        """Rows of in_proj_qkvz are [keys, q | k | v | z]; those of in_proj_ba stay."""
        both = self.take(root + "in_proj_qkvz.weight")
        each = 2 * key_dim + 2 * width

        def part(begin, end):
            return [both.rows[k * each + i] for k in range(keys) for i in range(begin, end)]

        self.add(block + "attn_qkv.weight", both.with_rows(
            part(0, key_dim) + part(key_dim, 2 * key_dim) + part(2 * key_dim, 2 * key_dim + width)))
        self.add(block + "attn_gate.weight", both.with_rows(part(2 * key_dim + width, each)))
        self.add(block + "ssm_ba.weight", self.take(root + "in_proj_ba.weight"))

    # --- Mamba-2 with attention

    def mamba_keys(self, prefix):
        c = self.config
        heads = c.get("mamba_num_heads") or c["mamba_n_heads"]
        self.key("ssm.conv_kernel", U32, c.get("conv_kernel") or c["mamba_d_conv"])
        self.key("ssm.state_size", U32, c.get("ssm_state_size") or c["mamba_d_state"])
        self.groups = c.get("n_groups") or c["mamba_n_groups"]
        self.key("ssm.group_count", U32, self.groups)
        self.key("ssm.inner_size", U32, heads * (c.get("mamba_head_dim") or c["mamba_d_head"]))
        self.key("ssm.time_step_rank", U32, heads)

    def mamba(self, root, block):
        self.add(block + "ssm_in.weight", self.take(root + "in_proj.weight"))
        conv = self.take(root + "conv1d.weight")
        self.add(block + "ssm_conv1d.weight", Tensor([conv.shape[0], conv.shape[2]], conv.rows, conv.size))
        self.add(block + "ssm_conv1d.bias", self.take(root + "conv1d.bias"))
        self.decay(block + "ssm_a", self.take(root + "A_log"), column=True)
        d = self.take(root + "D")
        self.add(block + "ssm_d", Tensor([d.shape[0], 1], d.rows, d.size))
        self.add(block + "ssm_dt.bias", self.take(root + "dt_bias"))
        norm = self.take(root + "norm.weight")
        self.tensors[block + "ssm_norm.weight"] = of_floats([self.groups, norm.shape[0] // self.groups], norm.floats())
        self.add(block + "ssm_out.weight", self.take(root + "out_proj.weight"))

    def attention(self, root, block):
        c = self.config
        heads = {"q": c["num_attention_heads"], "k": c["num_key_value_heads"]}
        for name, count in heads.items():
            self.add(f"{block}attn_{name}.weight",
                     halves_alternate(self.take(f"{root}{name}_proj.weight"), count))
        self.add(block + "attn_v.weight", self.take(root + "v_proj.weight"))
        self.add(block + "attn_output.weight", self.take(root + "o_proj.weight"))

    def bamba(self, layers):
        c = self.config
        self.common("granitehybrid", c["rms_norm_eps"], layers)
        with_attention = c["attn_layer_indices"]
        self.ints("attention.head_count_kv",
                  [c["num_key_value_heads"] if i in with_attention else 0 for i in range(layers)])
        self.key("feed_forward_length", U32, c["intermediate_size"])
        self.key("rope.freq_base", F32, c["rope_theta"])
        self.key("rope.dimension_count", U32, c["attn_rotary_emb"])
        self.key("rope.scaling.finetuned", BOOL, True)
        self.mamba_keys("mamba_")
        self.add("token_embd.weight", self.take("model.embed_tokens.weight"))
        for i in range(layers):
            root, block = f"model.layers.{i}.", f"blk.{i}."
            self.add(block + "attn_norm.weight", self.take(root + "input_layernorm.weight"))
            self.add(block + "ffn_norm.weight", self.take(root + "pre_ff_layernorm.weight"))
            if i in with_attention:
                self.attention(root + "self_attn.", block)
            else:
                self.mamba(root + "mamba.", block)
            for name in ("gate", "up", "down"):
                self.add(f"{block}ffn_{name}.weight", self.take(f"{root}feed_forward.{name}_proj.weight"))
        self.add("output_norm.weight", self.take("model.final_layernorm.weight"))
        self.add("output.weight", self.take("lm_head.weight"))

    def nemotron(self, layers):
        c = self.config
        letters = {"moe": "E", "mamba": "M", "attention": "*", "mlp": "-"}
        pattern = c.get("hybrid_override_pattern") or "".join(letters[kind] for kind in c["layers_block_type"])
        self.common("nemotron_h_moe", c["layer_norm_epsilon"], layers)
        self.key("attention.layer_norm_epsilon", F32, c["layer_norm_epsilon"])
        self.ints("attention.head_count_kv", [c["num_key_value_heads"] if kind == "*" else 0 for kind in pattern])
        width = {"E": c["moe_intermediate_size"], "-": c["intermediate_size"]}
        self.ints("feed_forward_length", [width.get(kind, 0) for kind in pattern])
        self.key("rope.dimension_count", U32, self.head_dim)
        self.key("rope.scaling.finetuned", BOOL, False)
        self.mamba_keys("mamba_")
        self.key("expert_used_count", U32, c["num_experts_per_tok"])
        self.key("expert_feed_forward_length", U32, c["moe_intermediate_size"])
        self.key("expert_shared_feed_forward_length", U32, c["moe_shared_expert_intermediate_size"])
        self.key("expert_count", U32, c["n_routed_experts"])
        self.key("expert_shared_count", U32, c["n_shared_experts"])
        self.key("expert_weights_norm", BOOL, c["norm_topk_prob"])
        self.key("expert_weights_scale", F32, c["routed_scaling_factor"])
        self.key("expert_group_count", U32, c["n_group"])
        self.key("expert_group_used_count", U32, c["topk_group"])
        if c.get("moe_latent_size"):
            self.key("moe_latent_size", U32, c["moe_latent_size"])
        self.add("token_embd.weight", self.take("backbone.embeddings.weight"))
        for i, kind in enumerate(pattern):
            root, block = f"backbone.layers.{i}.", f"blk.{i}."
            self.add(block + "attn_norm.weight", self.take(root + "norm.weight"))
            root += "mixer."
            if kind == "M":
                self.mamba(root, block)
            elif kind == "*":
                self.attention(root, block)
            elif kind == "E":
                self.nemotron_experts(root, block)
            else:
                for name in ("up", "down"):
                    self.add(f"{block}ffn_{name}.weight", self.take(f"{root}{name}_proj.weight"))
        self.add("output_norm.weight", self.take("backbone.norm_f.weight"))
        self.add("output.weight", self.take("lm_head.weight"))

    def nemotron_experts(self, root, block):
        self.add(block + "ffn_gate_inp.weight", self.take(root + "gate.weight"))
        self.add(block + "exp_probs_b.bias", self.take(root + "gate.e_score_correction_bias"))
        for name in ("up", "down"):
            self.add(f"{block}ffn_{name}_shexp.weight", self.take(f"{root}shared_experts.{name}_proj.weight"))
            self.add(f"{block}ffn_{name}_exps.weight",
                     stacked([self.take(f"{root}experts.{e}.{name}_proj.weight")
                              for e in range(self.config["n_routed_experts"])]))
        if self.config.get("moe_latent_size"):
            self.add(block + "ffn_latent_down.weight", self.take(root + "fc1_latent_proj.weight"))
            self.add(block + "ffn_latent_up.weight", self.take(root + "fc2_latent_proj.weight"))

    # --- the file

    def write(self, path):
        if self.source:
            raise SystemExit(f"not converted: {sorted(self.source)}")
        out = [struct.pack("<4sIQQ", b"GGUF", 3, len(self.tensors), len(self.keys))]
        for name, kind, value in self.keys:
            out.append(packed_text(name) + struct.pack("<I", kind) + packed(kind, value))
        offset = 0
        for name, tensor in self.tensors.items():
            out.append(packed_text(name) + struct.pack("<I", len(tensor.shape)))
            out.append(struct.pack(f"<{len(tensor.shape)}Q", *reversed(tensor.shape)))
            out.append(struct.pack("<IQ", TYPE_F32 if tensor.size == 4 else TYPE_BF16, offset))
            offset += aligned(sum(map(len, tensor.rows)))
        header = b"".join(out)
        with open(path, "wb") as file:
            file.write(header.ljust(aligned(len(header)), b"\0"))
            for tensor in self.tensors.values():
                data = b"".join(tensor.rows)
                file.write(data.ljust(aligned(len(data)), b"\0"))


def aligned(length):
    return -(-length // ALIGNMENT) * ALIGNMENT


def packed_text(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def packed(kind, value):
    if kind == ARRAY:
        return struct.pack("<IQ", I32, len(value)) + struct.pack(f"<{len(value)}i", *value)
    if kind == TEXT:
        return packed_text(value)
    return struct.pack({U32: "<I", F32: "<f", BOOL: "<?"}[kind], value)


def main(folder, out, *flags):
    config = json.load(open(os.path.join(folder, "config.json")))
    name = config["architectures"][0]
    config = config.get("text_config", config)
    writer = Writer(config, read_tensors(os.path.join(folder, "model.safetensors")), "--fuse-experts" in flags)
    layers = config.get("num_hidden_layers")
    if name.startswith("Qwen3_5Moe"):
        writer.qwen("qwen35moe", "model.language_model.", layers)
    elif name.startswith("Qwen3_5"):
        writer.qwen("qwen35", "model.language_model.", layers)
    elif name == "Qwen3NextForCausalLM":
        writer.qwen("qwen3next", "model.", layers)
    elif name == "BambaForCausalLM":
        writer.bamba(layers)
    elif name == "NemotronHForCausalLM":
        writer.nemotron(layers)
    else:
        raise SystemExit(f"{name}: not converted")
    writer.write(out)


main(*sys.argv[1:])
