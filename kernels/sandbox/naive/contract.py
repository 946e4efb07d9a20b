"""An example of a contract: an exponential moving average along each sequence, which a later call continues.

    verbatim kernel invariance --contract THIS.py --python my_module:ema --profile exact
    verbatim kernel check --contract THIS.py --file ema.cc
"""

import numpy as np

from verbatim.kernel import Contract, Operand, Size


def reference(x, decay, state_in, first_row, y, state_out):
    """state = fma-free decay * state + x, one token after another; y is the state after its token."""
    for sequence, (first, end) in enumerate(zip(first_row, first_row[1:])):
        state = np.zeros(x.shape[1], np.float32) if state_in is None else state_in[sequence].copy()
        for row in range(first, end):
            state = decay * state + x[row]
            y[row] = state
        state_out[sequence] = state


contract = Contract(
    name="ema",
    formula="state = decay * state + x; y = state",
    batch="sequences",
    sizes=[Size("sequences", edges=[1, 2, 3, 5]), Size("tokens", usual=5, edges=[1, 2, 3, 15, 16, 17, 64, 65]),
           Size("width", usual=9), Size("has_state", least=0, usual=1, edges=[0, 1], is_choice=True)],
    operands=[Operand("x", width="width"),
              Operand("decay", unit="call", width="width", is_plain=True),
              Operand("state_in", unit="sequence", width="has_state * width", continues="state_out"),
              Operand("y", role="out", width="width"),
              Operand("state_out", role="out", unit="sequence", width="width")],
    tolerance=("ulps_of_unit", 256),
    reference=reference,
)
