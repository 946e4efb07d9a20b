"""results.py reads what ctest writes: names with their reasons, and a program that is not there is a failure."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).with_name("results.py")
NOISE = "a.cc:5: Skipped\nno GPU\n  here\n\n[  SKIPPED ] {} (0 ms)\n"
ENDS = {"OK": "[       OK ]", "FAILED": "[  FAILED  ]", "SKIPPED": "[  SKIPPED ]"}
SKIPPED = "a.cc:5: Skipped\nno disk\n\n"


def printed(num_cases, *cases):
    """What a gtest program prints of so many cases."""
    said = f"Running main()\n[==========] Running {num_cases} tests from 1 test suite.\n"
    for name, result, text in cases:
        parameter = ", where GetParam() = 7" if "/" in name else ""
        said += f"[ RUN      ] {name}\n{text}{ENDS[result]} {name}{parameter if result == 'FAILED' else ''} (1 ms)\n"
    return said


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

    def test_a_shard_is_the_cases_that_it_prints(self):
        said = printed(4, ("A.a", "OK", ""), ("A/B.b/3", "FAILED", "no end of line"), ("A.c", "SKIPPED", SKIPPED),
                       ("A.d", "OK", "[       OK ] A.other (1 ms)\n"))
        one = [case("tests_x/1", "fail", f"<system-out>{said}[  FAILED  ] A/B.b/3\n</system-out>")]
        self.assertEqual(self.asked("counts", one), "2 1 1\n")
        self.assertEqual(self.asked("failed", one), "A/B.b/3, where GetParam() = 7\n")
        self.assertEqual(self.asked("not-tested", one), "not tested: A.c: no disk\n")

    def test_a_shard_that_ended_early_fails_by_the_case_and_by_its_name(self):
        said = printed(3, ("A.a", "OK", "")) + "[ RUN      ] A.b\nERROR: AddressSanitizer\n"
        one = [case("tests_x/1", "fail", f"<system-out>{said}</system-out>")]
        self.assertEqual(self.asked("failed", one), "A.b, and the program ended in it\n"
                                                    "tests_x/1: 2 of 3 cases were run\n")
        one = [case("tests_x/1", "run", f"<system-out>{printed(2, ('A.a', 'OK', ''))}</system-out>")]
        self.assertEqual(self.asked("failed", one), "tests_x/1: 1 of 2 cases were run\n")

    def test_a_shard_that_fails_behind_its_cases_fails_by_its_name(self):
        leak = printed(1, ("A.a", "OK", "")) + "ERROR: LeakSanitizer"
        for status, said, name in (("fail", leak, "tests_x/1"), ("run", "", "tests_x/1: 0 of its cases were run"),
                                   ("fail", "no library", "tests_x/1: 0 of its cases were run")):
            one = [case("tests_x/1", status, f"<system-out>{said}</system-out>")]
            self.assertEqual(self.asked("failed", one), name + "\n")
        none = [case("tests_x/1", "run", f"<system-out>{printed(0)}</system-out>")]
        self.assertEqual(self.asked("counts", none), "0 0 0\n")


if __name__ == "__main__":
    unittest.main()
