#!/usr/bin/env python3
"""Makes golden.safetensors for a checkpoint: what Hugging Face transformers computes for it, in binary64 where it can.

    tools/model/make_golden.py DIR [--out FILE] [--lengths 1,3,4,17,64,130] [--seed 1]

DIR holds config.json and model.safetensors. The tensors are those that reference/loader/golden_file.h describes:
tokens.I, logits.I for every prompt, hidden.I.K for one of them, ssm.I.K and conv.I.K for two. The file's metadata say
which releases made it. `verbatim model check DIR` compares.

The modelling files convert to float32 in places (norms, softmax, rotary tables, the scan) whatever the model's dtype
is. To get the truth rather than one more rounding, float32 is made to mean float64 before the model is built: the
checkpoint's weights are read first, then every conversion to float32 goes to float64.

Needs: torch, transformers, safetensors. Exit codes: 0 done, 2 bad usage, 3 the checkpoint cannot be read.
"""
import argparse
import pathlib
import sys


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path, metavar="DIR", help="a checkpoint's folder")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="default: DIR/golden.safetensors")
    parser.add_argument("--lengths", default="1,3,4,17,64,130", help="lengths of the prompts (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the prompts' tokens (default: %(default)s)")
    arguments = parser.parse_args()
    if not (arguments.folder / "config.json").is_file():
        print(f"make_golden: error: {arguments.folder}: has no config.json", file=sys.stderr)
        sys.exit(3)
    try:
        arguments.lengths = [int(length) for length in arguments.lengths.split(",")]
    except ValueError:
        arguments.lengths = []
    if not arguments.lengths or min(arguments.lengths) < 1:
        parser.error("--lengths: wanted numbers from 1, separated by commas")
    arguments.out = arguments.out or arguments.folder / "golden.safetensors"
    return arguments


def read_weights(folder):
    """Every tensor of the checkpoint's files in binary64, by name."""
    from safetensors.torch import load_file

    weights = {}
    for file in sorted(folder.glob("model*.safetensors")):
        weights.update(load_file(file))
    return {name: tensor.double() for name, tensor in weights.items()}


def widen_float32():
    """From here on, what asks PyTorch for float32 gets float64."""
    import torch

    torch.float32 = torch.float64
    torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)


def build_model(folder, weights):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder)
    config.dtype = torch.float64
    config._attn_implementation = "eager"
    if hasattr(config, "use_mamba_kernels"):
        config.use_mamba_kernels = False
    model = AutoModelForCausalLM.from_config(config).double().eval()
    missing, unexpected = load_state(model, weights)
    if missing or unexpected:
        print(f"make_golden: error: {folder}: missing {missing}, unexpected {unexpected}", file=sys.stderr)
        sys.exit(3)
    # Some releases clamp Nemotron-H's dt at time_step_min in prefill alone; the published model does not
    # (huggingface/transformers#48989).
    limit = tuple(getattr(config, "time_step_limit", None) or (0.0, float("inf")))
    for module in model.modules():
        if hasattr(module, "time_step_limit"):
            module.time_step_limit = limit
    return model


def load_state(model, weights):
    """Fills the model; a release may call the root `model` where the checkpoint says `backbone`."""
    own = model.state_dict()
    renamed = {}
    for name, tensor in weights.items():
        if name not in own and name.startswith("backbone."):
            name = "model." + name.removeprefix("backbone.")
        renamed[name] = tensor.reshape(own[name].shape) if name in own else tensor
    missing, unexpected = model.load_state_dict(renamed, strict=False)
    tied = model.config.tie_word_embeddings
    if tied:
        model.tie_weights()
    return [name for name in missing if not (tied and name == "lm_head.weight")], unexpected


def layer_states(cache, layer):
    """(ssm, conv) of a layer after the prompt, however this release's cache keeps them; None where there is none."""
    layers = getattr(cache, "layers", None)
    if layers is not None and layer < len(layers):
        ssm = getattr(layers[layer], "recurrent_states", None)
        conv = getattr(layers[layer], "conv_states", None)
    else:
        ssm = pick(getattr(cache, "ssm_states", None), layer)
        conv = pick(getattr(cache, "conv_states", None), layer)
    if isinstance(ssm, dict):
        ssm, conv = next(iter(ssm.values())), next(iter(conv.values()))
    if ssm is None or conv is None or ssm.numel() == 0 or conv.numel() == 0:
        return None
    return ssm, conv


def pick(states, layer):
    if states is None:
        return None
    if isinstance(states, dict):
        return states.get(layer)
    return states[layer] if layer < len(states) else None


def watch_hidden_rows(model, rows):
    """Appends what enters each layer and what the final norm gives: releases disagree about output_hidden_states."""
    base = model.base_model
    norm = next(getattr(base, name) for name in ("norm", "final_layernorm", "norm_f") if hasattr(base, name))

    def before_layer(module, positional, named):
        rows.append(positional[0] if positional else named["hidden_states"])

    hooks = [layer.register_forward_pre_hook(before_layer, with_kwargs=True) for layer in base.layers]
    hooks.append(norm.register_forward_hook(lambda module, given, result: rows.append(result)))
    return hooks


def run_prompt(model, tokens, number, tensors, with_hidden, with_states):
    import torch

    hidden = []
    hooks = watch_hidden_rows(model, hidden) if with_hidden else []
    with torch.no_grad():
        output = model(input_ids=tokens[None], use_cache=with_states)
    for hook in hooks:
        hook.remove()
    tensors[f"tokens.{number}"] = tokens.to(torch.int32)
    tensors[f"logits.{number}"] = output.logits[0].double().clone()
    for k, rows in enumerate(hidden):
        tensors[f"hidden.{number}.{k}"] = rows[0].double().clone()
    if not with_states:
        return
    cache = getattr(output, "past_key_values", None)
    cache = cache if cache is not None else getattr(output, "cache_params", None)
    for layer in range(model.config.num_hidden_layers):
        states = layer_states(cache, layer)
        if states is not None:
            tensors[f"ssm.{number}.{layer}"] = states[0][0].double().contiguous().clone()
            tensors[f"conv.{number}.{layer}"] = states[1][0].double().contiguous().clone()


def main():
    arguments = parse_arguments()
    import safetensors
    import torch
    import transformers
    from safetensors.torch import save_file

    weights = read_weights(arguments.folder)
    widen_float32()
    model = build_model(arguments.folder, weights)
    generator = torch.Generator().manual_seed(arguments.seed)
    count = len(arguments.lengths)
    detailed = count // 2  # hidden rows of the middle prompt; states of it and of the last
    tensors = {}
    for number, length in enumerate(arguments.lengths):
        tokens = torch.randint(0, model.config.vocab_size, (length,), generator=generator)
        run_prompt(model, tokens, number, tensors, number == detailed, number in (detailed, count - 1))
    made_with = {
        "made_with": f"transformers {transformers.__version__}, torch {torch.__version__}, "
        f"safetensors {safetensors.__version__}",
        "arithmetic": "binary64",
        "seed": str(arguments.seed),
    }
    save_file(tensors, arguments.out, metadata=made_with)
    print(f"{arguments.out}: {count} prompts, {len(tensors)} tensors, {made_with['made_with']}")


if __name__ == "__main__":
    main()
