"""The contract of a gated delta rule with one head, for the Triton kernels of triton_kernels.py."""

import numpy as np

from verbatim.kernel import Contract, Operand, Size


def reference(q, k, v, beta, decay, state_in, first_row, y, state_out):
    """In binary64, one token after another: k / |k|, and the sigmoids of beta and decay."""
    with np.errstate(all="ignore"):
        keys = k.astype(np.float64)
        keys = keys / np.sqrt(np.sum(keys * keys, axis=1, keepdims=True) + 1e-6)
        betas, decays = (1 / (1 + np.exp(-each.astype(np.float64))) for each in (beta, decay))
        for sequence, (first, end) in enumerate(zip(first_row, first_row[1:])):
            shape = (k.shape[1], v.shape[1])
            state = np.zeros(shape) if state_in is None else state_in[sequence].reshape(shape).astype(np.float64)
            for row in range(first, end):
                state = decays[row] * state
                state = state + np.outer(keys[row], betas[row] * (v[row] - keys[row] @ state))
                y[row] = q[row] @ state
            state_out[sequence] = state.reshape(-1)


contract = Contract(
    name="delta_rule",
    formula="S = decay S; S = S + k (beta (v - k S)); y = q S",
    batch="sequences",
    sizes=[Size("sequences", usual=2, edges=[1, 2]), Size("tokens", usual=3, edges=[1, 3, 17]),
           Size("key_dim", usual=4, edges=[4]), Size("value_dim", usual=3, edges=[3]),
           Size("has_state", least=0, usual=1, edges=[0, 1], is_choice=True)],
    operands=[Operand("q", width="key_dim"), Operand("k", width="key_dim"), Operand("v", width="value_dim"),
              Operand("beta", width="1"), Operand("decay", width="1"),
              Operand("state_in", unit="sequence", width="has_state * key_dim * value_dim", continues="state_out"),
              Operand("y", role="out", width="value_dim"),
              Operand("state_out", role="out", unit="sequence", width="key_dim * value_dim")],
    tolerance=("ulps_of_unit", 4096),
    reference=reference,
)
