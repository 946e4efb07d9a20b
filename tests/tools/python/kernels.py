"""Kernels in numpy, right and wrong, and a contract's, for kernel_test.py."""

import os
import time

import numpy as np

from verbatim.kernel import from_float, to_float

np.seterr(all="ignore")  # infinities and NaN are among the values


def rms_norm(x, weight, eps):
    """Exact: 64 partial sums of fused products, halved; binary64 has the products, and rounds once more than fma."""
    width = x.shape[1]
    mean = np.sum(x.astype(np.float64) ** 2, axis=1, keepdims=True) / width
    return (x / np.sqrt(mean + eps) * weight).astype(np.float32)


def matmul(x, weight, bias, in_multiplier, n, k):
    values = to_float(from_float(x * in_multiplier, "bf16"), "bf16").astype(np.float64)
    out = values @ to_float(weight, "bf16").reshape(n, k).T.astype(np.float64)
    return (out if bias is None else out + bias).astype(np.float32)


def activation(up, gate, gate_multiplier, kind):
    """In place: it returns None."""
    if kind == 1:
        up[:] = np.where(up > 0, up * up, np.where(np.isnan(up), up, 0))
    else:
        z = gate.astype(np.float64) * gate_multiplier
        up *= (z / (1 + np.exp(-z))).astype(np.float32)


def split_by_batch(x, weight, eps):
    """Another order of the sum from 20 rows on."""
    rows, width = x.shape
    parts = 1 if rows < 20 else 4
    squares = x * x
    mean = np.zeros((rows, 1), np.float32)
    for part in range(parts):
        mean += np.cumsum(squares[:, part::parts], axis=1, dtype=np.float32)[:, -1:] if width > part else 0
    return x / np.sqrt(mean / np.float32(width) + eps) * weight


def wrong_from_64_rows(x, weight, eps):
    out = rms_norm(x, weight, eps)
    if len(x) >= 64:
        out[63] = 12345
    return out


def wrong_shape(x, weight, eps):
    return rms_norm(x, weight, eps)[:, :-1]


def wrong_dtype(x, weight, eps):
    return rms_norm(x, weight, eps).astype(np.float64)


def two_values(x, weight, eps):
    return rms_norm(x, weight, eps), eps


def nothing(x):
    return None


def raises(x):
    raise ValueError(f"{x.shape[1]} columns")


def unknown_parameter(x, gamma):
    return x


def changes_input(x, weight, eps):
    x[0, 0] = 1
    return rms_norm(x, weight, eps)


def hangs(x):
    time.sleep(60)


def exits(x):
    os._exit(3)


def ema(x, decay, state_in, first_row):
    """What the example contract's reference computes."""
    y = np.empty_like(x)
    states = np.empty((len(first_row) - 1, x.shape[1]), np.float32)
    for sequence in range(len(states)):
        state = np.zeros(x.shape[1], np.float32) if state_in is None else state_in[sequence].copy()
        for row in range(first_row[sequence], first_row[sequence + 1]):
            state = decay * state + x[row]
            y[row] = state
        states[sequence] = state
    return {"y": y, "state_out": states}


def ema_in_pairs(x, decay, state_in, first_row):
    """Two tokens in one step: the pairs begin where the call begins."""
    y = np.empty_like(x)
    states = np.empty((len(first_row) - 1, x.shape[1]), np.float32)
    for sequence in range(len(states)):
        state = np.zeros(x.shape[1], np.float32) if state_in is None else state_in[sequence].copy()
        row, end = first_row[sequence], first_row[sequence + 1]
        while row < end:
            y[row] = decay * state + x[row]
            if row + 1 < end:
                state = (decay * decay) * state + (decay * x[row] + x[row + 1])
                y[row + 1] = state
            else:
                state = y[row].copy()
            row += 2
        states[sequence] = state
    return y, states
