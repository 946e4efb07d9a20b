#!/usr/bin/env python3
"""Python functions as kernels: by `verbatim kernel check --python`, and by verbatim.kernel in a test.

    kernel_test.py VERBATIM SOURCE_DIR SCRATCH_DIR ENVIRONMENT

Installs `numpy` into ENVIRONMENT (tests/environment.py). Exit code 77: it cannot be had, and nothing was tested.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent


def command(*arguments):
    """(exit code, stdout, stderr) of `verbatim kernel`"""
    done = subprocess.run([os.environ["VERBATIM_PROGRAM"], "kernel", *map(str, arguments)], capture_output=True,
                          text=True, check=False, cwd=HERE, timeout=300)
    return done.returncode, done.stdout, done.stderr


def report(verb, op, function, *more):
    code, out, err = command(verb, op, "--python", f"kernels:{function}", "--effort", "short", "--format", "json",
                             *more)
    return code, json.loads(out) if out else err


class OfTheCommand(unittest.TestCase):
    def test_right_functions_pass(self):
        for op, function in [("rms_norm", "rms_norm"), ("matmul", "matmul"), ("activation", "activation")]:
            with self.subTest(op=op):
                code, said = report("check", op, function)
                self.assertEqual((code, said["verdict"]), (0, "pass"), said)
                self.assertGreater(said["cases"], 60)

    def test_what_a_function_may_not_return_is_named(self):
        wanted = {"wrong_shape": "out has shape (", "wrong_dtype": "out has dtype float64, wanted float32",
                  "two_values": "it returns 2 values, wanted 1: out",
                  "nothing": "it returns None, and has no parameter for its output 'out'",
                  "raises": "ValueError: ",
                  "unknown_parameter": "it has a parameter 'gamma': there are rows, width, x, weight, out, eps"}
        for function, words in wanted.items():
            with self.subTest(function=function):
                code, said = report("check", "rms_norm", function)
                self.assertEqual((code, said["verdict"]), (1, "fails"), said)
                self.assertIn(words, said["first_failure"]["detail"])

    def test_an_exception_has_its_line(self):
        source = (HERE / "kernels.py").read_text(encoding="utf-8").splitlines()
        line = next(i for i, text in enumerate(source, 1) if "raise ValueError" in text)
        self.assertIn(f"kernels.py:{line}: ", report("check", "rms_norm", "raises")[1]["first_failure"]["detail"])

    def test_a_function_that_cannot_be_loaded_fails(self):
        for target, words in [("no_such_module:f", "ModuleNotFoundError"), ("kernels:no_such", "AttributeError")]:
            code, out, _ = command("check", "rms_norm", "--python", target, "--format", "json")
            self.assertEqual(code, 1)
            self.assertIn(words, json.loads(out)["first_failure"]["detail"])

    def test_faults_have_their_verdicts(self):
        wanted = {"wrong_from_64_rows": "beyond the bound", "changes_input": "changes an input", "exits": "crash"}
        for function, verdict in wanted.items():
            with self.subTest(function=function):
                code, said = report("check", "rms_norm", function)
                self.assertEqual((code, said["verdict"]), (1, verdict), said)
        self.assertEqual(report("check", "rms_norm", "wrong_from_64_rows")[1]["first_failure"]["sizes"]["rows"], 64)

    def test_a_hang_ends_at_the_limit(self):
        code, said = report("check", "rms_norm", "hangs", "--time-limit", "2")
        self.assertEqual((code, said["verdict"]), (1, "hang"), said)

    def test_a_sum_that_knows_its_batch_is_not_invariant(self):
        self.assertEqual(report("check", "rms_norm", "split_by_batch")[1]["verdict"], "pass")
        _, said = report("invariance", "rms_norm", "split_by_batch")
        self.assertEqual(said["invariant"], {"run": True, "batch": False, "position": True, "chunk": True,
                                             "threads": True})

    def test_bad_flags(self):
        code, _, err = command("check", "rms_norm", "--python", "kernels")
        self.assertEqual(code, 3, err)
        self.assertIn("wanted module:function", err)
        code, _, err = command("race", "rms_norm", "--python", "kernels:rms_norm")
        self.assertEqual(code, 3, err)
        self.assertIn("`race` is for CUDA's threads", err)
        code, _, err = command("check", "rms_norm", "--python", "kernels:rms_norm", "--flag", "-fsanitize=thread")
        self.assertEqual(code, 3, err)
        self.assertIn("sanitizers are for a file of yours", err)


class OfAContract(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "my_op.py")
        code, _, err = command("new", "--contract", self.path)
        self.assertEqual(code, 0, err)

    def run_it(self, verb, function, *more):
        return report(verb, "ema", function, "--contract", self.path, *more)

    def test_the_example_is_checked_and_invariant(self):
        code, said = self.run_it("check", "ema", "--profile", "exact")
        self.assertEqual((code, said["verdict"]), (0, "pass"), said)
        code, said = self.run_it("invariance", "ema", "--profile", "exact")
        self.assertEqual((code, said["verdict"]), (0, "pass"), said)

    def test_pairs_of_tokens_depend_on_their_chunk(self):
        self.assertEqual(self.run_it("check", "ema_in_pairs", "--values", "normal,integers")[1]["verdict"], "pass")
        _, said = self.run_it("invariance", "ema_in_pairs")
        self.assertEqual(said["invariant"], {"run": True, "batch": True, "position": True, "chunk": False,
                                             "threads": True})
        self.assertLessEqual(said["first_failure"]["sizes"]["tokens"], 3)

    def test_a_contract_that_raises_is_an_error(self):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write("\nraise RuntimeError('not yet')\n")
        code, said = self.run_it("check", "ema")
        self.assertEqual(code, 3)
        self.assertIn("RuntimeError: not yet", said)


class OfATest(unittest.TestCase):
    """verbatim.kernel in this process: closures, too."""

    def test_a_closure_passes(self):
        import kernels
        import verbatim.kernel
        result = verbatim.kernel.check(lambda x, weight, eps: kernels.rms_norm(x, weight, eps), op="rms_norm")
        self.assertEqual(result.verdict, "pass")

    def test_a_failure_is_an_assertion_with_the_smallest_case(self):
        import kernels
        import verbatim.kernel
        with self.assertRaisesRegex(verbatim.kernel.KernelFailure, r"(?s)beyond the bound.*rows 64, width 1;"):
            verbatim.kernel.check(kernels.wrong_from_64_rows, op="rms_norm")
        with self.assertRaisesRegex(AssertionError, "batch: no"):
            verbatim.kernel.invariance(kernels.split_by_batch, op="rms_norm")
        result = verbatim.kernel.invariance(kernels.split_by_batch, op="rms_norm", holds=["run", "position"])
        self.assertIs(result.invariant["batch"], False)

    def test_a_function_that_hangs_or_exits_leaves_the_test_alive(self):
        import kernels
        import verbatim.kernel
        for function, verdict in [(kernels.hangs, "hang"), (kernels.exits, "crash")]:
            with self.assertRaises(verbatim.kernel.KernelFailure) as caught:
                verbatim.kernel.check(function, op="rms_norm", time_limit=2)
            self.assertEqual(caught.exception.result.verdict, verdict)

    def test_an_unknown_operation_is_no_failure_of_the_function(self):
        import verbatim.kernel
        with self.assertRaisesRegex(RuntimeError, "is no operation"):
            verbatim.kernel.check(lambda x: x, op="rms")

    def test_small_floats_round_to_nearest_even(self):
        import numpy as np
        from verbatim.kernel import from_float, to_float
        for dtype, number in [("bf16", 1 << 16), ("f8_e4m3", 256), ("f8_e5m2", 256)]:
            bits = np.arange(number).astype(np.uint16 if number > 256 else np.uint8)
            values = to_float(bits, dtype)
            kept = ~np.isnan(values)
            np.testing.assert_array_equal(from_float(values, dtype)[kept], bits[kept])
        np.testing.assert_array_equal(to_float(from_float([448, 464, 465, 17, 19, -1.0625], "f8_e4m3"), "f8_e4m3"),
                                      np.array([448, 448, np.nan, 16, 20, -1], np.float32))


def main():
    program, source, scratch, environment = sys.argv[1], *map(pathlib.Path, sys.argv[2:5])
    have = subprocess.run([sys.executable, "-B", source / "tests/environment.py", environment, "numpy"], check=False)
    if have.returncode != 0:
        return have.returncode
    python = environment / "bin" / "python"
    settings = {**os.environ, "VERBATIM_PROGRAM": program, "VERBATIM_PYTHON": str(python), "TMPDIR": str(scratch),
                "PYTHONPATH": f"{source / 'tools/python'}:{HERE}", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([python, "-m", "unittest", "-q", "kernel_test"], cwd=HERE, env=settings,
                          check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
