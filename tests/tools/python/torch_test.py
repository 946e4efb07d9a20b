#!/usr/bin/env python3
"""PyTorch functions and Triton kernels (in Triton's interpreter) as kernels of `verbatim kernel --python`.

    torch_test.py VERBATIM SOURCE_DIR SCRATCH_DIR ENVIRONMENT

Runs with the first of $VERBATIM_PYTHON, ENVIRONMENT's Python and python3 that imports torch. Exit code 77: none does.
Without Triton the tests of its kernels are skipped.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent


def report(verb, op, function, *more):
    """(exit code, the report's JSON)"""
    done = subprocess.run([os.environ["VERBATIM_PROGRAM"], "kernel", verb, op, "--python", function, "--arrays",
                           "torch", "--effort", "short", "--format", "json", *more], capture_output=True, text=True,
                          check=False, cwd=HERE, timeout=500)
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


class OfPyTorch(unittest.TestCase):
    def test_right_functions_pass(self):
        for op in ["rms_norm", "matmul"]:
            with self.subTest(op=op):
                code, said = report("check", op, f"torch_kernels:{op}")
                self.assertEqual((code, said["verdict"]), (0, "pass"), said)
                self.assertGreater(said["cases"], 60)

    def test_tensors_have_pytorchs_types_and_scalars_pythons(self):
        for op, function, words in [("rms_norm", "says_what_it_gets", "torch.float32 torch.float32 float"),
                                    ("matmul", "says_its_weight", "torch.bfloat16")]:
            detail = report("check", op, f"torch_kernels:{function}")[1]["first_failure"]["detail"]
            self.assertTrue(detail.endswith(f"ValueError: {words}"), detail)

    def test_bfloat16_is_returned_as_its_bits(self):
        import numpy as np
        import torch
        from verbatim.kernel import _as_numpy, _as_torch
        bits = np.array([[0x3F80, 0xC000, 0x0001]], np.uint16)
        tensor = _as_torch(bits, "bf16")
        self.assertEqual(tensor[0, :2].tolist(), [1, -2])
        self.assertEqual(tensor.dtype, torch.bfloat16)
        np.testing.assert_array_equal(_as_numpy(tensor, "bf16"), bits)
        self.assertEqual(_as_numpy(tensor, "bf16").dtype, np.uint16)
        draws = np.array([1 << 63, 5], np.uint64)
        np.testing.assert_array_equal(_as_numpy(_as_torch(draws, "u64"), "u64"), draws)

    def test_a_sum_that_knows_its_batch_is_not_invariant(self):
        _, said = report("invariance", "rms_norm", "torch_kernels:split_by_batch")
        self.assertEqual(said["invariant"], {"run": True, "batch": False, "position": True, "chunk": True,
                                             "threads": True})

    def test_a_test_that_has_used_pytorchs_threads_can_check(self):
        import torch
        import torch_kernels
        import verbatim.kernel
        torch.set_num_threads(2)
        self.assertEqual((torch.ones(1000, 1000) + 1).sum().item(), 2e6)
        result = verbatim.kernel.check(torch_kernels.rms_norm, op="rms_norm", arrays="torch",
                                       shape="rows=512,width=4096")
        self.assertEqual(result.verdict, "pass")


@unittest.skipUnless(importlib.util.find_spec("triton"), "Python has no triton")
class OfTriton(unittest.TestCase):
    def test_a_norm_passes(self):
        code, said = report("check", "rms_norm", "triton_kernels:rms_norm")
        self.assertEqual((code, said["verdict"]), (0, "pass"), said)

    def run_delta_rule(self, verb, function):
        return report(verb, "delta_rule", f"triton_kernels:{function}", "--contract", "delta_rule.py", "--values",
                      "normal")

    def test_the_delta_rule_passes_in_chunks_and_by_token(self):
        for function in ["delta_rule_in_chunks", "delta_rule_by_token"]:
            with self.subTest(function=function):
                code, said = self.run_delta_rule("check", function)
                self.assertEqual((code, said["verdict"]), (0, "pass"), said)

    def test_only_the_delta_rule_by_token_is_chunk_invariant(self):
        for function, is_invariant in [("delta_rule_in_chunks", False), ("delta_rule_by_token", True)]:
            with self.subTest(function=function):
                _, said = self.run_delta_rule("invariance", function)
                self.assertEqual(said["invariant"], {"run": True, "batch": True, "position": True,
                                                     "chunk": is_invariant, "threads": True}, said)


def imports_torch(python):
    try:
        return subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def main():
    program, source, scratch, environment = sys.argv[1], *map(pathlib.Path, sys.argv[2:5])
    pythons = [os.environ.get("VERBATIM_PYTHON") or "python3", str(environment / "bin" / "python"), "python3"]
    python = next(filter(imports_torch, pythons), None)
    if python is None:
        print("skipped: no Python that imports torch: VERBATIM_PYTHON names one")
        return 77
    settings = {**os.environ, "VERBATIM_PROGRAM": program, "VERBATIM_PYTHON": python, "TMPDIR": str(scratch),
                "PYTHONPATH": f"{source / 'tools/python'}:{HERE}", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([python, "-m", "unittest", "-v", "torch_test"], cwd=HERE, env=settings,
                          check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
