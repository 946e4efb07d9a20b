"""Triton kernels for torch_test.py: a norm, and the delta rule of delta_rule.py in chunks and token by token."""

import torch
import triton
import triton.language as tl

CHUNK = 16  # tokens: the least side of tl.dot


@triton.jit
def _rms_norm(x, weight, out, stride, width, eps, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    inside = column < width
    values = tl.load(x + row * stride + column, mask=inside, other=0.0)
    scaled = values / tl.sqrt(tl.sum(values * values, axis=0) / width + eps)
    tl.store(out + row * width + column, scaled * tl.load(weight + column, mask=inside, other=0.0), mask=inside)


def rms_norm(x, weight, eps, rows, width):
    out = torch.empty(rows, width)
    _rms_norm[(rows,)](x, weight, out, x.stride(0), width, eps, BLOCK=triton.next_power_of_2(width))
    return out


@triton.jit
def _tokens(pointer, row, stride, column, inside):
    """[C, N]: of the C rows the columns that are inside; zeros elsewhere."""
    return tl.load(pointer + row[:, None] * stride + column[None, :], mask=inside, other=0.0)


@triton.jit
def _delta_rule_in_chunks(q, k, v, beta, decay, state_in, first_row, y, state_out, q_stride, k_stride, v_stride,
                          beta_stride, decay_stride, state_stride, key_dim, value_dim, HAS_STATE: tl.constexpr,
                          C: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr):
    """One program per sequence; chunks of C tokens begin where the call begins.

    decays[i, j]: the product of the decays after j up to i. A chunk's d = beta (v - k S) of all its tokens solve
    (I + A) d = beta (v - decays k S), A[i, j] = beta[i] decays[i, j] k[i] k[j] for j < i.
    """
    sequence = tl.program_id(0)
    i, key, column = tl.arange(0, C), tl.arange(0, KEYS), tl.arange(0, VALUES)
    in_key, in_value = key < key_dim, column < value_dim
    cell, in_state = key[:, None] * value_dim + column[None, :], in_key[:, None] & in_value[None, :]
    state = tl.zeros((KEYS, VALUES), tl.float32)
    if HAS_STATE:
        state = tl.load(state_in + sequence * state_stride + cell, mask=in_state, other=0.0)
    begin, end = tl.load(first_row + sequence), tl.load(first_row + sequence + 1)
    while begin < end:
        row = begin + i
        inside = row < end
        of_keys, of_values = inside[:, None] & in_key[None, :], inside[:, None] & in_value[None, :]
        qs, ks = _tokens(q, row, q_stride, key, of_keys), _tokens(k, row, k_stride, key, of_keys)
        ks = ks / tl.sqrt(tl.sum(ks * ks, axis=1)[:, None] + 1e-6)
        b = tl.where(inside, tl.sigmoid(tl.load(beta + row * beta_stride, mask=inside, other=0.0)), 0.0)
        g = tl.where(inside, tl.sigmoid(tl.load(decay + row * decay_stride, mask=inside, other=0.0)), 1.0)
        since_begin = tl.cumprod(g, 0)
        is_later = i[:, None] > i[None, :]
        decays = tl.cumprod(tl.where(is_later, g[:, None], 1.0), 0)
        a = tl.where(is_later, b[:, None] * decays * tl.dot(ks, tl.trans(ks), input_precision="ieee"), 0.0)
        known = since_begin[:, None] * tl.dot(ks, state, input_precision="ieee")
        d = b[:, None] * (_tokens(v, row, v_stride, column, of_values) - known)
        # A's 16th power is 0: (I + A)^-1 = (I - A) (I + A^2) (I + A^4) (I + A^8)
        inverse, power = tl.where(i[:, None] == i[None, :], 1.0, -a), a
        for _ in range(3):
            power = tl.dot(power, power, input_precision="ieee")
            inverse += tl.dot(inverse, power, input_precision="ieee")
        d = tl.dot(inverse, d, input_precision="ieee")
        scores = tl.where(i[:, None] >= i[None, :], decays * tl.dot(qs, tl.trans(ks), input_precision="ieee"), 0.0)
        out = since_begin[:, None] * tl.dot(qs, state, input_precision="ieee")
        out += tl.dot(scores, d, input_precision="ieee")
        tl.store(y + row[:, None] * value_dim + column[None, :], out, mask=of_values)
        to_end = tl.sum(tl.where(i[:, None] == C - 1, decays, 0.0), axis=0)
        state *= tl.sum(tl.where(i == C - 1, since_begin, 0.0), axis=0)
        state += tl.dot(tl.trans(ks), to_end[:, None] * d, input_precision="ieee")
        begin += C
    tl.store(state_out + sequence * key_dim * value_dim + cell, state, mask=in_state)


@triton.jit
def _delta_rule_by_token(q, k, v, beta, decay, state_in, first_row, y, state_out, q_stride, k_stride, v_stride,
                         beta_stride, decay_stride, state_stride, key_dim, value_dim, HAS_STATE: tl.constexpr,
                         C: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr):
    """One program per sequence; one token after another."""
    sequence = tl.program_id(0)
    key, column = tl.arange(0, KEYS), tl.arange(0, VALUES)
    in_key, in_value = key < key_dim, column < value_dim
    cell, in_state = key[:, None] * value_dim + column[None, :], in_key[:, None] & in_value[None, :]
    state = tl.zeros((KEYS, VALUES), tl.float32)
    if HAS_STATE:
        state = tl.load(state_in + sequence * state_stride + cell, mask=in_state, other=0.0)
    row, end = tl.load(first_row + sequence), tl.load(first_row + sequence + 1)
    while row < end:
        qt = tl.load(q + row * q_stride + key, mask=in_key, other=0.0)
        kt = tl.load(k + row * k_stride + key, mask=in_key, other=0.0)
        kt = kt / tl.sqrt(tl.sum(kt * kt, axis=0) + 1e-6)
        state *= tl.sigmoid(tl.load(decay + row * decay_stride))
        vt = tl.load(v + row * v_stride + column, mask=in_value, other=0.0)
        d = tl.sigmoid(tl.load(beta + row * beta_stride)) * (vt - tl.sum(state * kt[:, None], axis=0))
        state += kt[:, None] * d[None, :]
        tl.store(y + row * value_dim + column, tl.sum(state * qt[:, None], axis=0), mask=in_value)
        row += 1
    tl.store(state_out + sequence * key_dim * value_dim + cell, state, mask=in_state)


def _launch(kernel, q, k, v, beta, decay, state_in, first_row, sequences, key_dim, value_dim):
    y, state_out = torch.empty(len(q), value_dim), torch.empty(sequences, key_dim * value_dim)
    before = state_out if state_in is None else state_in
    kernel[(sequences,)](q, k, v, beta, decay, before, first_row, y, state_out, q.stride(0), k.stride(0), v.stride(0),
                         beta.stride(0), decay.stride(0), before.stride(0), key_dim, value_dim,
                         HAS_STATE=state_in is not None, C=CHUNK, KEYS=max(16, triton.next_power_of_2(key_dim)),
                         VALUES=max(16, triton.next_power_of_2(value_dim)))
    return y, state_out


def delta_rule_in_chunks(q, k, v, beta, decay, state_in, first_row, sequences, key_dim, value_dim):
    return _launch(_delta_rule_in_chunks, q, k, v, beta, decay, state_in, first_row, sequences, key_dim, value_dim)


def delta_rule_by_token(q, k, v, beta, decay, state_in, first_row, sequences, key_dim, value_dim):
    return _launch(_delta_rule_by_token, q, k, v, beta, decay, state_in, first_row, sequences, key_dim, value_dim)
