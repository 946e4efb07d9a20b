#!/usr/bin/env python3
"""Trains a tiny Qwen3.5 with a multi-token prediction layer and saves it as published checkpoints are: text_config
nested, mtp.* and a vision tensor beside the language model.

make_mtp_model.py TOKENIZER_DIR OUT MINUTES: wants torch, transformers >= 5 and tokenizers. The text is Python's
standard library, by function; the vocabulary TOKENIZER_DIR's (2048 tokens). Prints how often the layer's guess is the
model's own next token, one, two and three steps ahead.
"""
import ast
import glob
import json
import os
import random
import shutil
import sys
import sysconfig
import time

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5DecoderLayer, Qwen3_5RMSNorm

HIDDEN = 128
ROPE = {"mrope_interleaved": True, "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.25, "rope_theta": 10000,
        "rope_type": "default"}
TEXT = {"vocab_size": 2048, "hidden_size": HIDDEN, "intermediate_size": 352, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "linear_num_key_heads": 4,
        "linear_num_value_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
        "linear_conv_kernel_dim": 4, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True, "rope_parameters": ROPE, "attention_bias": False, "eos_token_id": 0,
        "layer_types": ["linear_attention", "full_attention", "full_attention"]}


def functions():
    """The text of every short function of the standard library, module by module."""
    root = sysconfig.get_path("stdlib")
    for path in sorted(glob.glob(root + "/**/*.py", recursive=True)):
        if any(part in path for part in ("/test/", "/tests/", "lib2to3", "-packages", "pydoc_data", "encodings/")):
            continue
        try:
            source = open(path, encoding="utf-8").read()
            tree = ast.parse(source)
            lines = source.splitlines()
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef):
                continue
            text = "\n".join(line[node.col_offset:] for line in lines[node.lineno - 1:node.end_lineno]) + "\n"
            if 60 < len(text) < 2400:
                yield text


class MtpLayer(torch.nn.Module):
    """mtp.*: the next token's embedding and the hidden row before it, through one layer with attention."""

    def __init__(self, config):
        super().__init__()
        self.pre_fc_norm_embedding = Qwen3_5RMSNorm(HIDDEN, eps=config.rms_norm_eps)
        self.pre_fc_norm_hidden = Qwen3_5RMSNorm(HIDDEN, eps=config.rms_norm_eps)
        self.fc = torch.nn.Linear(2 * HIDDEN, HIDDEN, bias=False)
        self.layers = torch.nn.ModuleList([Qwen3_5DecoderLayer(config, 2)])
        self.norm = Qwen3_5RMSNorm(HIDDEN, eps=config.rms_norm_eps)

    def forward(self, embedded, hidden, rotary):
        x = self.fc(torch.cat([self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden)], -1))
        positions = torch.arange(x.shape[1]).view(1, 1, -1).expand(3, x.shape[0], -1)
        mask = torch.full((x.shape[1], x.shape[1]), -torch.inf).triu(1)[None, None]
        return self.norm(self.layers[0](x, rotary(x, positions), attention_mask=mask))


def hidden_rows(model, ids):
    return model.model(input_ids=ids, use_cache=False).last_hidden_state


def guesses(model, mtp, ids, hidden, steps):
    """Logits of `steps` predictions: those of step s at column i are of token i + 2 + s. The tokens are ids' own."""
    for step in range(steps):
        embedded = model.model.embed_tokens(ids[:, 1 + step:])
        hidden = mtp(embedded, hidden[:, :embedded.shape[1]], model.model.rotary_emb)
        yield model.lm_head(hidden)


def save(model, mtp, out):
    os.makedirs(out, exist_ok=True)
    tensors = {"model.language_model." + name.removeprefix("model."): value
               for name, value in model.state_dict().items() if name != "lm_head.weight"}
    tensors |= {"mtp." + name: value for name, value in mtp.state_dict().items()}
    tensors["model.visual.patch_embed.proj.bias"] = torch.zeros(8)
    save_file({name: value.to(torch.bfloat16).contiguous() for name, value in tensors.items()},
              out + "/model.safetensors", metadata={"format": "pt"})
    text = dict(TEXT, model_type="qwen3_5_text", hidden_act="silu", attn_output_gate=True,
                mamba_ssm_dtype="float32", mtp_num_hidden_layers=1, mtp_use_dedicated_embeddings=False,
                torch_dtype="bfloat16")
    config = {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "text_config": text,
              "tie_word_embeddings": True, "vision_config": {"depth": 1}, "image_token_id": 2044,
              "video_token_id": 2045, "vision_start_token_id": 2046, "vision_end_token_id": 2047}
    json.dump(config, open(out + "/config.json", "w"), indent=1)


@torch.no_grad()
def report(model, mtp, held_back):
    agree = np.zeros(3)
    for at in range(0, 40 * 256, 256):
        ids = torch.from_numpy(held_back[None, at:at + 257])
        hidden = hidden_rows(model, ids)
        own = model.lm_head(hidden).argmax(-1)  # of token i + 1
        chain = torch.ones(254, dtype=torch.bool)
        for step, logits in enumerate(guesses(model, mtp, ids, hidden, 3)):
            right = (logits.argmax(-1) == own[:, 1 + step:])[0, :254]
            chain = chain[:right.shape[0]] & right
            agree[step] += chain.float().mean().item() / 40
    print("guesses that agree, with all before them:", agree, flush=True)


def main():
    tokenizer_dir, out, minutes = sys.argv[1], sys.argv[2], float(sys.argv[3])
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    torch.set_num_threads(1)
    tokenizer = Tokenizer.from_file(tokenizer_dir + "/tokenizer.json")
    texts = list(functions())
    random.shuffle(texts)
    ids = np.array([token for text in texts for token in [0] + tokenizer.encode(text).ids], np.int64)
    print("tokens", len(ids), flush=True)
    train, held_back = ids[:-40000], ids[-40000:]
    config = Qwen3_5TextConfig(**TEXT)
    config._attn_implementation = "eager"
    model = Qwen3_5ForCausalLM(config).float()
    mtp = MtpLayer(config)
    for parameter in mtp.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, 0, 0.02)
    parameters = [*model.parameters(), *mtp.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.01)
    begin, step, average = time.time(), 0, None
    while (done := (time.time() - begin) / (60 * minutes)) < 1:
        for group in optimiser.param_groups:
            group["lr"] = 4e-3 * min(1, (step + 1) / 40) * (1 - 0.97 * done)
        at = np.random.randint(0, len(train) - 128, 6)
        batch = torch.from_numpy(np.stack([train[a:a + 128] for a in at]))
        hidden = hidden_rows(model, batch)
        losses = [F.cross_entropy(model.lm_head(hidden)[:, :-1].flatten(0, 1), batch[:, 1:].flatten())]
        for ahead, logits in enumerate(guesses(model, mtp, batch, hidden.detach(), 2), 2):
            losses.append(F.cross_entropy(logits[:, :-1].flatten(0, 1), batch[:, ahead:].flatten()))
        optimiser.zero_grad()
        (losses[0] + 0.3 * losses[1] + 0.15 * losses[2]).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        now = np.array([loss.item() for loss in losses])
        average = now if average is None else 0.95 * average + 0.05 * now
        step += 1
        if step % 20 == 0:
            print(step, f"{time.time() - begin:.0f} s, losses", average, flush=True)
        if step % 50 == 0:
            save(model, mtp, out)
    save(model, mtp, out)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(f"{tokenizer_dir}/{name}", out)
    report(model, mtp, held_back)


if __name__ == "__main__":
    main()
