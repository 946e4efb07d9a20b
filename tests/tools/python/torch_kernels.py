"""Kernels in PyTorch on the CPU, right and wrong, for torch_test.py."""

import torch


def rms_norm(x, weight, eps):
    mean = x.double().square().mean(dim=1, keepdim=True)
    return (x / (mean + eps).sqrt() * weight).float()


def matmul(x, weight, bias, in_multiplier, n, k):
    out = ((x * in_multiplier).bfloat16().double() @ weight.view(n, k).double().t()).float()
    return out if bias is None else out + bias


def split_by_batch(x, weight, eps):
    """Another order of the sum from 20 rows on."""
    squares = x.square()
    parts = 1 if len(x) < 20 else 4
    sums = sum(squares[:, part::parts].cumsum(dim=1)[:, -1:] for part in range(min(parts, x.shape[1])))
    return x / (sums / x.shape[1] + eps).sqrt() * weight


def says_what_it_gets(x, weight, eps):
    raise ValueError(f"{x.dtype} {weight.dtype} {type(eps).__name__}")


def says_its_weight(weight):
    raise ValueError(f"{weight.dtype}")
