"""Writes tests/data/quantised/compressed_tensors.safetensors: a matrix [32, 128] in the forms of quantised checkpoints,
and what the compressed-tensors package says its weights are.

    python3 make_quantised_golden.py OUT        (needs the packages compressed-tensors and torch)

Of each form: `FORM.weight...`, the tensors of a checkpoint (of awq also `awq.qweight`, `.qzeros` and `.scales`), and
`FORM.values`, the weights in binary32, computed with the stored scale widened to binary32.
"""
import sys

import torch
from compressed_tensors.compressors.naive_quantized import FloatQuantizationCompressor, IntQuantizationCompressor
from compressed_tensors.compressors.pack_quantized import PackedQuantizationCompressor
from compressed_tensors.entrypoints.convert.converters.autoawq import AutoAWQConverter
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import save_file

ROWS, COLUMNS = 32, 128
INT4 = dict(num_bits=4, type="int", strategy="group", group_size=64)
FORMS = {
    "int8_tensor": (IntQuantizationCompressor, dict(num_bits=8, type="int", strategy="tensor")),
    "int8_channel": (IntQuantizationCompressor, dict(num_bits=8, type="int", strategy="channel")),
    "int4_group": (PackedQuantizationCompressor, dict(symmetric=True, **INT4)),
    "int4_group_zero": (PackedQuantizationCompressor, dict(symmetric=False, **INT4)),
    "int8_packed": (PackedQuantizationCompressor, dict(num_bits=8, type="int", strategy="channel")),
    "fp8_tensor": (FloatQuantizationCompressor, dict(num_bits=8, type="float", strategy="tensor")),
    "fp8_channel": (FloatQuantizationCompressor, dict(num_bits=8, type="float", strategy="channel")),
    "fp8_block": (FloatQuantizationCompressor,
                  dict(num_bits=8, type="float", strategy="block", block_structure=[16, 64])),
}


def blocks_of(weight, arguments):
    """The weight as [blocks of rows, blocks of columns, weights of a block]."""
    rows, columns = {"tensor": (ROWS, COLUMNS), "channel": (1, COLUMNS), "group": (1, 64), "block": (16, 64)}[
        arguments["strategy"]]
    parts = weight.reshape(ROWS // rows, rows, COLUMNS // columns, columns).permute(0, 2, 1, 3)
    return parts.reshape(ROWS // rows, COLUMNS // columns, -1)


def values_of(compressor, scheme, tensors):
    widened = dict(tensors, weight_scale=tensors["weight_scale"].float())
    return compressor.decompress(widened, scheme)["weight"].float().contiguous()


def main():
    torch.manual_seed(17)
    out = {}
    for number, (form, (compressor, arguments)) in enumerate(FORMS.items()):
        args = QuantizationArgs(**arguments)
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        weight = torch.randn(ROWS, COLUMNS) * 0.05 + 0.01
        parts = blocks_of(weight, arguments)
        scale, zero = calculate_qparams(parts.amin(2), parts.amax(2), args)
        scale = scale.to(torch.bfloat16 if number % 2 == 0 else torch.float32)
        if arguments["strategy"] == "tensor":
            scale, zero = scale.reshape(1), zero.reshape(1)
        state = {"weight": weight, "weight_scale": scale}
        if not args.symmetric:
            state["weight_zero_point"] = zero.to(torch.int8)
        tensors = compressor.compress(state, scheme)
        for name, tensor in tensors.items():
            out[f"{form}.{name}"] = tensor.contiguous()
        out[f"{form}.values"] = values_of(compressor, scheme, tensors)
    awq = {
        "layer.qweight": torch.randint(-2**31, 2**31 - 1, (COLUMNS, ROWS // 8), dtype=torch.int32),
        "layer.qzeros": torch.randint(-2**31, 2**31 - 1, (COLUMNS // 64, ROWS // 8), dtype=torch.int32),
        "layer.scales": (torch.rand(COLUMNS // 64, ROWS) * 0.01 + 0.001).half(),
    }
    for name, tensor in awq.items():
        out["awq." + name.removeprefix("layer.")] = tensor
    converter = AutoAWQConverter(bits=4, group_size=64, zero_point=True, version="gemm", targets=[r"re:.*layer.*"])
    converted = converter.process(dict(awq))
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(symmetric=False, **INT4))
    out["awq.values"] = values_of(PackedQuantizationCompressor, scheme,
                                  {name.removeprefix("layer."): tensor for name, tensor in converted.items()})
    save_file(out, sys.argv[1])


if __name__ == "__main__":
    main()
