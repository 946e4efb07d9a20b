"""Writes tests/data/gguf/blocks.safetensors: blocks of every GGUF weight type and what gguf-py says they mean.

    python3 make_block_golden.py OUT        (needs the packages gguf, numpy and xllamacpp)

Of each type: `TYPE.blocks` and `TYPE.values` (binary32 bits), random bytes under ordinary and extreme scales;
`TYPE.digest`, FNV-1a over the values of 256 blocks in which every byte but those of a scale takes every value. Of each
type with a quantiser: `TYPE.from` and `TYPE.quantised`; gguf-py has none for Q4_K and Q6_K, so those are made by ggml's
reference functions in xllamacpp's library.
"""
import ctypes
import importlib.util
import json
import struct
import sys

import gguf
import numpy as np

# Of each type, where fp16 scales lie in a block.
HALVES = {"F32": [], "F16": [], "BF16": [], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
          "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0],
          "IQ4_XS": [0], "MXFP4": []}
EXTREMES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E01]


def put_halves(blocks, offsets, halves):
    for offset in offsets:
        blocks[:, offset] = halves & 0xFF
        blocks[:, offset + 1] = halves >> 8


def values_of(blocks, kind):
    flat = np.ascontiguousarray(blocks).reshape(1, -1)
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(gguf.quants.dequantize(flat, kind)).reshape(-1).view(np.uint32)


def sample_blocks(rng, size, offsets):
    random = rng.integers(0, 256, (6, size), dtype=np.uint8)
    put_halves(random, offsets, rng.normal(0, 0.02, 6).astype(np.float16).view(np.uint16))
    extreme = rng.integers(0, 256, (len(EXTREMES), size), dtype=np.uint8)
    put_halves(extreme, offsets, np.array(EXTREMES, np.uint16))
    uniform = np.stack([np.full(size, byte, np.uint8) for byte in (0x00, 0x55, 0x7B, 0xAA)])
    return np.concatenate([random, extreme, uniform])


def every_byte(size, offsets):
    blocks = (np.arange(256)[:, None] + 37 * np.arange(size)[None, :]).astype(np.uint8)
    put_halves(blocks, offsets, np.full(256, 0x2345, np.uint16))
    return blocks


def fnv(words):
    digest = 0xCBF29CE484222325
    for word in words.tolist():
        digest = (digest ^ word) * 0x100000001B3 & (1 << 64) - 1
    return np.array([digest], np.uint64)


def quantiser_input(rng):
    rows = [rng.normal(0, 0.05, (12, 32)), np.zeros((1, 32)), np.full((1, 32), 0.25), rng.normal(0, 3e4, (1, 32)),
            rng.normal(0, 1e-7, (1, 32)), np.tile([1.0, -1.0], 16)[None], np.arange(-16, 16)[None] / 16]
    return np.concatenate(rows).astype(np.float32).astype(np.float64).astype(np.float32)


def k_quantiser_input(rng):
    rows = [rng.normal(0, 0.05, (6, 256)), rng.uniform(-1, 1, (2, 256)), np.abs(rng.normal(0, 1, (1, 256))),
            -np.abs(rng.normal(0, 1, (1, 256))), np.zeros((1, 256)), np.full((1, 256), 0.25), np.full((1, 256), -0.25),
            rng.normal(0, 1e3, (1, 256)), np.arange(-128, 128)[None] / 128, rng.normal(0, 1, (1, 256)) ** 3]
    return np.concatenate(rows).astype(np.float32)


def quantised_by_ggml(name, values, size):
    library = ctypes.CDLL(importlib.util.find_spec("xllamacpp.xllamacpp").origin)
    blocks = np.zeros((values.shape[0], size), np.uint8)
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (values, blocks)]
    getattr(library, f"quantize_row_{name}_ref")(*pointers, ctypes.c_int64(values.size))
    return blocks


def main(out):
    rng = np.random.default_rng(43)
    tensors = {}
    for name, offsets in HALVES.items():
        kind = gguf.GGMLQuantizationType[name]
        size = gguf.GGML_QUANT_SIZES[kind][1]
        blocks = sample_blocks(rng, size, offsets)
        tensors[name + ".blocks"] = blocks
        tensors[name + ".values"] = values_of(blocks, kind)
        tensors[name + ".digest"] = fnv(values_of(every_byte(size, offsets), kind))
    for name in ("Q8_0", "Q4_0"):
        values = quantiser_input(rng)
        tensors[name + ".from"] = values.view(np.uint32)
        tensors[name + ".quantised"] = gguf.quants.quantize(values, gguf.GGMLQuantizationType[name])
    rng = np.random.default_rng(44)
    values = quantiser_input(rng)
    tensors["Q5_0.from"] = values.view(np.uint32)
    tensors["Q5_0.quantised"] = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q5_0)
    for name in ("Q4_K", "Q6_K"):
        values = k_quantiser_input(rng)
        tensors[name + ".from"] = values.view(np.uint32)
        tensors[name + ".quantised"] = quantised_by_ggml(name.replace("Q", "q"), values,
                                                         gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1])
    header, data = {"__metadata__": {"gguf": "0.19.0"}}, b""
    for name, tensor in tensors.items():
        dtype = {"uint8": "U8", "uint32": "U32", "uint64": "U64"}[str(tensor.dtype)]
        begin = len(data)
        data += np.ascontiguousarray(tensor).tobytes()
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header)
    text += " " * (-len(text) % 8)
    with open(out, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text.encode() + data)


main(*sys.argv[1:])
