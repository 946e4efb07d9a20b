"""Tests of builds.py: it separates results that differ, runs that fail, and comparisons that are missing."""

import hashlib
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import builds

DIGEST = "0123456789abcdef" * 2


class BuildsTest(unittest.TestCase):
    def test_equal_results_are_counted(self):
        lines, compared = builds.differences({"a": {("r", "avx2"): "1", ("r", "portable"): "1"},
                                              "b": {("r", "avx2"): "1"}})
        self.assertEqual((lines, compared), ([], 2))

    def test_another_result_is_named_with_the_one_that_it_differs_from(self):
        lines, compared = builds.differences({"a": {("r", "avx2"): "1"}, "b": {("r", "avx2"): "2"}})
        self.assertEqual((lines, compared), (["b: r, avx2: 2, but 1 with a, avx2"], 1))

    def test_a_run_that_failed_is_no_result(self):
        lines, compared = builds.differences({"a": {("r", "-"): "failed: x"}, "b": {("r", "-"): "2"}})
        self.assertEqual((lines, compared), (["a: r, -: failed: x"], 0))

    def test_a_runs_result_is_its_digest_or_its_files_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            source = out = pathlib.Path(folder)
            program = out / "program"
            program.write_text(f"#!/bin/sh\necho \"digest {DIGEST} (all)\"\necho $1 > {folder}/file\nexit $1\n")
            program.chmod(0o755)
            digest = builds.Run("digest", "0")
            self.assertEqual(builds.result_of(program, digest, "-", source, out), DIGEST)
            file = builds.Run("file", "5 {out}", "file")
            self.assertEqual(builds.result_of(program, file, "-", source, out), hashlib.sha256(b"5\n").hexdigest()[:32])
            bad = builds.result_of(program, builds.Run("bad", "3"), "-", source, out)
            self.assertTrue(bad.startswith("failed: 3: exit code 3"), bad)

    def test_a_compiler_that_is_not_here_is_a_problem(self):
        with tempfile.TemporaryDirectory() as folder:
            build = builds.Build("none", "no-such-compiler", "-O2")
            problem = builds.make(build, pathlib.Path("."), pathlib.Path(folder), 1)
            self.assertEqual(problem, "no-such-compiler is not here")


if __name__ == "__main__":
    unittest.main()
