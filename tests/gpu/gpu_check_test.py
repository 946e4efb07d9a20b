#!/usr/bin/env python3
"""tools/gpu-check with stand-ins for the built programs: which parts are run, what their records say.

gpu_check_test.py [unittest's arguments]
"""

import glob
import os
import shutil
import subprocess
import tempfile
import unittest

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Lists three tests; says which was asked for, and skips, fails or hangs at the ones that are named in the environment.
TESTS_GPU = """#!/bin/bash
for argument in "$@"; do
    case $argument in --gtest_filter=*) filter=${argument#*=} ;; esac
done
if [ "$1" = --gtest_list_tests ]; then
    case $filter in
        'GpuNumerics.*') printf 'GpuNumerics.\\n  Fma\\n  Exp\\n' ;;
        'Gpu.*') printf 'Gpu.\\n  Matmuls\\n' ;;
        *) printf 'GpuSweep.\\n  All\\n' ;;
    esac
    exit
fi
echo "tests_gpu $filter"
[ "$filter" != "$HANGS" ] || sleep 60
if [ "$filter" = "$SKIPS" ]; then printf 'numerics_test.cc:9: Skipped\n%s\n\n[  SKIPPED ] 1 test.\n' "$REASON"; fi
[ "$filter" != "$FAILS" ]
"""
BENCHMARK = '#!/bin/bash\nif [ "$1" = --describe ]; then echo "Some GPU, 1 GiB"; else echo "gpu_benchmark $*"; fi\n'
VERBATIM = '#!/bin/bash\necho "verbatim $*"\n'
SANITIZER = '#!/bin/bash\necho "compute-sanitizer $*"\n'
NOTHING = "#!/bin/bash\n"
PARTS = ("numerics", "ops", "bench", "decode", "replay", "graphs", "kernels", "sanitize")


def write_program(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)


class GpuCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        os.makedirs(self.root + "/tools")
        for name in ("gpu-check", "setup.sh"):
            shutil.copy(f"{SOURCE}/tools/{name}", f"{self.root}/tools/{name}")
        for name in ("cmake", "nvcc"):
            write_program(f"{self.root}/bin/{name}", NOTHING)
        write_program(self.root + "/bin/compute-sanitizer", SANITIZER)
        write_program(self.root + "/kernels/sandbox/naive/rope.cu", "")
        built = self.root + "/build/gpu"
        write_program(built + "/tests/tests_gpu", TESTS_GPU)
        write_program(built + "/tests/gpu_benchmark", BENCHMARK)
        write_program(built + "/verbatim", VERBATIM)

    def check(self, *arguments, **environment):
        environment = {**os.environ, "PATH": self.root + "/bin:" + os.environ["PATH"], "GPU_CHECK_COMMIT": "abc",
                       "GPU_CHECK_RECORDS": self.root + "/records", "FAILS": "", "HANGS": "", "SKIPS": "",
                       **environment}
        return subprocess.run([self.root + "/tools/gpu-check", *arguments], env=environment, capture_output=True,
                              text=True, timeout=50, check=False)

    def records(self):
        """The text of every record, by its part."""
        found = {}
        for path in glob.glob(self.root + "/records/gpu-some-gpu-*.txt"):
            with open(path, encoding="utf-8") as file:
                found[path.rsplit("-", 1)[1].removesuffix(".txt")] = file.read()
        return found

    def test_all_parts_in_their_order_each_with_a_record(self):
        done = self.check()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        records = self.records()
        self.assertEqual(set(records), set(PARTS))
        places = [done.stdout.index(f"== {part}, ") for part in PARTS]
        self.assertEqual(places, sorted(places))
        for part, text in records.items():
            self.assertIn("device: Some GPU, 1 GiB\n", text)
            self.assertIn("commit: abc\n", text)
            self.assertIn(f"== {part}, ", text)
        self.assertIn("tests_gpu GpuNumerics.Exp", records["numerics"])
        self.assertNotIn("tests_gpu Gpu.Matmuls", records["numerics"])
        self.assertLess(records["ops"].index("tests_gpu Gpu.Matmuls"), records["ops"].index("tests_gpu GpuSweep.All"))
        self.assertIn("gpu_benchmark --decode", records["decode"])
        self.assertEqual(records["replay"].count("--beside reference --profile tensor.sm90"), 10)
        self.assertIn("--fail-executor-at 30", records["graphs"])
        self.assertIn("verbatim kernel check rope --file", records["kernels"])
        self.assertIn("verbatim kernel perf matmul --file", records["kernels"])
        self.assertIn("compute-sanitizer --tool racecheck", records["sanitize"])

    def test_a_part_alone(self):
        done = self.check("graphs", "numerics")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(set(self.records()), {"numerics", "graphs"})

    def test_building_alone_wants_no_device(self):
        write_program(self.root + "/build/gpu/tests/gpu_benchmark", "#!/bin/bash\nexit 1\n")
        self.assertEqual(self.check("build").returncode, 0)
        done = self.check("bench")
        self.assertEqual((done.returncode, "there is no GPU" in done.stderr), (4, True), done.stderr)
        self.assertEqual(self.records(), {})

    def test_what_cannot_work_is_found_before_the_build(self):
        nvcc = "#!/bin/bash\necho 'Cuda compilation tools, release 12.4, V12.4.99'\n"
        smi = ("#!/bin/bash\n[ \"$1\" != -L ] || { echo \"$GPUS\"; exit; }\n"
               "[ -n \"$1\" ] || echo \"| Driver Version: 1.2  CUDA Version: $CUDA |\"\n")
        write_program(self.root + "/bin/nvcc", nvcc)
        write_program(self.root + "/bin/nvidia-smi", smi)
        write_program(self.root + "/bin/cmake", "#!/bin/bash\n[ \"$1\" = --version ] || echo built >&2\n"
                                                "echo \"cmake version $CMAKE\"\n")
        shutil.copy(SOURCE + "/CMakeLists.txt", self.root + "/CMakeLists.txt")
        for words, wrong in (("the driver is of CUDA 11.8, nvcc of 12.4", {"CUDA": "11.8"}),
                             ("nvidia-smi finds no GPU", {"GPUS": "No devices found"}),
                             ("cmake is 3.16.3, and the build needs 3.24", {"CMAKE": "3.16.3"})):
            done = self.check("bench", **{"CUDA": "12.8", "GPUS": "GPU 0: Some", "CMAKE": "3.25.1", **wrong})
            self.assertEqual((done.returncode, "built" in done.stderr), (4, False), done.stderr)
            self.assertIn(words, done.stderr)
        done = self.check("bench", CUDA="12.2", GPUS="GPU 0: Some", CMAKE="3.25.1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("machine code runs, PTX does not", done.stderr)
        os.makedirs(self.root + "/.gpu")
        with open(self.root + "/.gpu/glibc", "w", encoding="utf-8") as file:
            file.write("99.1\n")
        done = self.check("bench", CUDA="12.8", GPUS="GPU 0: Some", CMAKE="3.25.1")
        self.assertEqual(done.returncode, 4)
        self.assertIn("the libraries of .gpu/ need 99.1", done.stderr)

    def test_no_compute_sanitizer_is_a_skip(self):
        os.remove(self.root + "/bin/compute-sanitizer")
        done = self.check("sanitize", PATH=self.root + "/bin:/usr/bin:/bin")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("compute-sanitizer: skipped", self.records()["sanitize"])

    def test_a_part_that_there_is_not_builds_nothing(self):
        write_program(self.root + "/bin/cmake", "#!/bin/bash\necho built >&2\n")
        done = self.check("numerics", "lunch")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no part lunch", done.stderr)
        self.assertNotIn("built", done.stderr)

    def test_what_fails_is_said_and_what_comes_after_it_is_done(self):
        done = self.check("numerics", "ops", FAILS="GpuNumerics.Fma")
        self.assertEqual(done.returncode, 1)
        records = self.records()
        self.assertRegex(records["numerics"], r"test GpuNumerics\.Fma +\d+ s  FAILED, exit code 1")
        self.assertRegex(records["numerics"], r"test GpuNumerics\.Exp +\d+ s  ok")
        self.assertRegex(records["ops"], r"test Gpu\.Matmuls +\d+ s  ok")

    def test_what_a_gpu_should_have_run_and_did_not_has_not_held(self):
        for reason in ("GPU: cudaSetDevice: no CUDA-capable device is detected",
                       "tensor.sm90 is refused: in the self-test of Some GPU, by mma 3 of 9 sums"):
            done = self.check("numerics", SKIPS="GpuNumerics.Fma", REASON=reason)
            self.assertEqual(done.returncode, 1, reason)
            record = self.records()["numerics"]
            self.assertRegex(record, r"test GpuNumerics\.Fma +\d+ s  SKIPPED: its reason is above")
            self.assertRegex(record, r"test GpuNumerics\.Exp +\d+ s  ok")
            self.assertIn(reason, record)

    def test_what_is_of_other_gpus_may_be_skipped(self):
        for reason in ("tensor.sm90 is the arithmetic of compute capability 9.0: this is Some GPU, compute capability "
                       "8.0; exact runs everywhere", "fast needs 229376 bytes of shared memory for a block",
                       "warpgroups are of compute capability 9.0: Some GPU, compute capability 8.0"):
            done = self.check("numerics", SKIPS="GpuNumerics.Fma", REASON=reason)
            self.assertEqual(done.returncode, 0, reason)
            self.assertRegex(self.records()["numerics"], r"test GpuNumerics\.Fma +\d+ s  ok")

    def test_a_hopper_machine_builds_for_itself_alone(self):
        write_program(self.root + "/bin/cmake", '#!/bin/bash\necho "cmake $*" >&2\n')
        for capability, wanted in (("9.0", "-DCMAKE_CUDA_ARCHITECTURES=90a"), ("8.0", "-UCMAKE_CUDA_ARCHITECTURES"),
                                   ("", "-UCMAKE_CUDA_ARCHITECTURES")):
            write_program(self.root + "/bin/nvidia-smi", f"#!/bin/bash\necho {capability}\n")
            done = self.check("build")
            self.assertEqual(done.returncode, 0, done.stderr)
            lines = [line for line in done.stderr.splitlines() if line.startswith("cmake -S")]
            self.assertIn(" " + wanted, lines[0])

    def test_what_hangs_is_stopped_and_what_has_no_time_is_left_out(self):
        done = self.check("numerics", HANGS="GpuNumerics.Fma", GPU_CHECK_SECONDS="8")
        self.assertEqual(done.returncode, 1)
        record = self.records()["numerics"]
        self.assertRegex(record, r"test GpuNumerics\.Fma +\d+ s  stopped: it took too long")
        self.assertRegex(record, r"test GpuNumerics\.Exp +\d+ s  left out: no time")


if __name__ == "__main__":
    unittest.main()
