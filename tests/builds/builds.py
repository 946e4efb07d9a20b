#!/usr/bin/env python3
"""Builds the program with several compilers, optimisations and sanitizers, and compares what each build computes.

builds.py --source DIR --work DIR [--only REGEX] [--jobs N]

Every build in BUILDS makes DIR/NAME/verbatim and runs the commands of RUNS with every instruction set of ISAS. A run's
result is the digest that it prints, or the SHA-256 of the file that it writes. All results of one run must be equal.
The table has a line per build; the last line counts what was compared. Exit code: 0 all are equal, 1 some differ, or a
build or a run failed, 2 nothing was compared.
"""

import argparse
import collections
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

CLANG = "clang++-19"

Build = collections.namedtuple("Build", "name compiler flags sanitize", defaults=[""])
# Without a build type: neither -O2 for the numeric code nor assertions of the standard library are added.
BUILDS = [
    Build("gcc-O2", "g++", "-O2"),
    Build("gcc-O0", "g++", "-O0"),
    Build("clang-O2", CLANG, "-O2"),
    Build("clang-O0", CLANG, "-O0"),
    Build("gcc-asan-ubsan", "g++", "-O1", "address,undefined"),
    Build("gcc-tsan", "g++", "-O1", "thread"),
]
ISAS = ("auto", "avx2", "portable")

# A run: its arguments, the file whose bytes are its result (none: the digest on stdout), and whether it uses fibers,
# which ThreadSanitizer does not know. {out} is a folder that is empty before a build's first run; {isa} is one of ISAS,
# and a run without it is made once.
Run = collections.namedtuple("Run", "name arguments file has_fibers", defaults=[None, False])
SCENARIO = "traces/scenario.csv"
RUNS = [
    Run("every family", "replay --isa {isa}"),
    Run("tensor.sm90", f"replay --trace {SCENARIO} --profile tensor.sm90 --limit 20 --isa {{isa}}"),
    Run("emulated CUDA", f"replay --trace {SCENARIO} --limit 6 --executor cuda-emulated --beside cpu", None, True),
    Run("random weights", "model init --preset tiny-granite --seed 7 --out {out}/model", "model/model.safetensors"),
    # The rows of the tiny presets are not whole blocks of q8_0.
    Run("q8_0", "model quantise server/models/tiny-python --to q8_0 --out {out}/q8_0.gguf", "q8_0.gguf"),
    Run("q8_0 replayed", f"replay --trace {SCENARIO} --limit 20 --model {{out}}/q8_0.gguf --isa {{isa}}"),
    Run("simulator", "simulate --trace traces/data/mooncake_conversation_trace.jsonl.gz --limit 500 "
        "--requests-csv {out}/requests.csv", "requests.csv"),
]
DIGEST = re.compile(r"^digest ([0-9a-f]{32})\b", re.M)


def options(build):
    # GCC 12 at -O0 refuses the prefetches of Eigen behind a precompiled header.
    return ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_CUDA_COMPILER=",
            f"-DCMAKE_DISABLE_PRECOMPILE_HEADERS={'ON' if '-O0' in build.flags else 'OFF'}",
            f"-DCMAKE_CXX_COMPILER={build.compiler}", f"-DCMAKE_CXX_FLAGS={build.flags}",
            f"-DVERBATIM_SANITIZE={build.sanitize}"]


def make(build, source, folder, jobs):
    """None, or why there is no program."""
    if shutil.which(build.compiler) is None:
        return f"{build.compiler} is not here"
    commands = [["cmake", "-S", source, "-B", folder, *options(build)],
                ["cmake", "--build", folder, "--target", "verbatim", "-j", str(jobs)]]
    folder.mkdir(parents=True, exist_ok=True)
    for command in commands:
        with open(folder / "build.log", "a", encoding="utf-8") as log:
            if subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode != 0:
                return f"does not build: {folder}/build.log"
    return None


def result_of(program, run, isa, source, out):
    """The digest, or a sentence that begins with `failed`."""
    arguments = [word.format(isa=isa, out=out) for word in run.arguments.split()]
    done = subprocess.run([program, *arguments], cwd=source, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 5):  # 5: nothing differs, but not all could be compared
        return f"failed: {' '.join(arguments)}: exit code {done.returncode}: {done.stderr.strip()[-200:]}"
    if run.file is not None:
        return hashlib.sha256((out / run.file).read_bytes()).hexdigest()[:32]
    found = DIGEST.search(done.stdout)
    return found.group(1) if found else f"failed: {' '.join(arguments)}: no digest in its output"


def results_of(program, build, source, out):
    """{(run, isa): result}"""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    return {(run.name, isa): result_of(program, run, isa, source, out)
            for run in RUNS if not (run.has_fibers and build.sanitize == "thread")
            for isa in (ISAS if "{isa}" in run.arguments else ("-",))}


def differences(results):
    """Of {build: {(run, isa): result}}: lines about runs whose results are not all equal, and the number of comparisons
    with the first result of each run."""
    first = {}
    lines = []
    compared = 0
    for build, by_run in results.items():
        for (run, isa), result in by_run.items():
            if result.startswith("failed"):
                lines.append(f"{build}: {run}, {isa}: {result}")
            elif run not in first:
                first[run] = (result, f"{build}, {isa}")
            else:
                compared += 1
                if result != first[run][0]:
                    lines.append(f"{build}: {run}, {isa}: {result}, but {first[run][0]} with {first[run][1]}")
    return lines, compared


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True, type=pathlib.Path)
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--only", default="", help="builds whose names match")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    flags = parser.parse_args()
    source, work = flags.source.resolve(), flags.work.resolve()
    results, problems = {}, []
    for build in (build for build in BUILDS if re.search(flags.only, build.name)):
        start = time.monotonic()
        problem = make(build, source, work / build.name, flags.jobs)
        built = time.monotonic()
        if problem is not None:
            problems.append(f"{build.name}: {problem}")
            print(f"{build.name:16} {problem}", flush=True)
            continue
        results[build.name] = results_of(work / build.name / "verbatim", build, source, work / build.name / "out")
        print(f"{build.name:16} built in {built - start:.0f} s, {len(results[build.name])} results in "
              f"{time.monotonic() - built:.0f} s: {results[build.name]['every family', ISAS[0]]}", flush=True)
    lines, compared = differences(results)
    for line in problems + lines:
        print(f"failed: {line}")
    print(f"{len(results)} builds, {len(RUNS)} runs, {compared} results compared, {len(lines)} differ or failed")
    if compared == 0:
        return 2
    return 1 if problems or lines else 0


if __name__ == "__main__":
    sys.exit(main())
