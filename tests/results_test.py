"""results.py reads what ctest writes: names with their reasons, and a program that is not there is a failure."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).with_name("results.py")
NOISE = "a.cc:5: Skipped\nno GPU\n  here\n\n[  SKIPPED ] {} (0 ms)\n"


def case(name, status, inner=""):
    return f'<testcase name="{name}" classname="{name}" time="0" status="{status}">{inner}</testcase>'


def skipped(name, said, message="SKIP_RETURN_CODE=77"):
    return case(name, "notrun", f'<skipped message="{message}"/><system-out>{said}</system-out>')


class Results(unittest.TestCase):
    def asked(self, what, *files):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for i, cases in enumerate(files):
                paths.append(pathlib.Path(folder) / f"{i}.xml")
                paths[-1].write_text(f'<testsuite>{"".join(cases)}</testsuite>', encoding="utf-8")
            return subprocess.run([sys.executable, "-B", SCRIPT, what, *paths], check=True, capture_output=True,
                                  text=True).stdout

    def test_counts_add_up_over_files(self):
        one = [case("A.a", "run"), case("A.b", "fail"), skipped("A.c", "skipped: why")]
        self.assertEqual(self.asked("counts", one, [case("B.a", "run"), case("B.b", "disabled")]), "2 1 2\n")

    def test_a_program_that_is_not_there_is_a_failure(self):
        one = [skipped("A.a", "Unable to find executable: x", "Unable to find executable")]
        self.assertEqual(self.asked("counts", one), "0 1 0\n")
        self.assertEqual(self.asked("failed", one), "A.a\n")

    def test_what_is_skipped_is_named_with_its_reason_once(self):
        wire = [skipped("Wire.A", "noise\nskipped: pip gets nothing: &lt;x&gt;\n"), skipped("ray", "skipped: no ray")]
        gpu = [skipped(f"Gpu.Test{i}", NOISE.format("x"), "SKIP_REGULAR_EXPRESSION_MATCHED") for i in range(7)]
        again = [skipped("Wire.A", "skipped: pip gets nothing: &lt;x&gt;"), skipped("Mute.A", "nothing")]
        self.assertEqual(self.asked("not-tested", wire + gpu, again).splitlines(),
                         ["not tested: Wire.A: pip gets nothing: <x>", "not tested: ray: no ray",
                          "not tested: Gpu.* (7): no GPU here: `tools/gpu-check` on a machine with a GPU runs these",
                          "not tested: Mute.A: the test gives no reason"])


if __name__ == "__main__":
    unittest.main()
