#!/usr/bin/env python3
"""The corpus: faulty kernels get exactly their verdicts, good ones pass.

    corpus.py VERBATIM SOURCE_DIR [--part good|faulty] [--seeds N [--first-seed S] [--hours H]] [--only REGEX] [--table]
    corpus.py VERBATIM SOURCE_DIR --nvcc NVCC [--only REGEX]

Kernels are compiled together: the good ones for a machine, the faulty ones of a file. --seeds N checks the good ones
with N seeds each, as libraries, and ends after H hours with the number that each file got. --table prints what is
found, by kind, verb and time. --nvcc compiles the good ones for Hopper, and no more: what passes here must be CUDA.
"""

import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HEAD = re.compile(r"kernel (\w+) of ([\w.]+), ([\w.]+), (\w+): (.+)")
PROFILE = re.compile(r'\.profile = "[\w.]+"')
EXPORT = "VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index)"


class Kernel(collections.namedtuple("Kernel", "name base profile verb says kind changes")):
    """One kernel of a corpus file."""

    def operation(self):
        return self.base.partition(".")[0]



def read(path):
    """The kernels of a corpus file, in order."""
    kernels, kind = [], ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        head = HEAD.fullmatch(line)
        if head:
            name, base, profile, verb, says = head.groups()
            kernels.append(Kernel(name, base, profile, verb, says, kind, []))
        elif line.startswith("# "):
            kind = line[2:]
        elif line[:2] == "- ":
            kernels[-1].changes.append([line[2:], ""])
        elif line[:2] == "-|":
            kernels[-1].changes[-1][0] += "\n" + line[2:]
        elif line[:2] == "+ ":
            kernels[-1].changes[-1][1] = line[2:]
        elif line[:2] == "+|":
            kernels[-1].changes[-1][1] += "\n" + line[2:]
        elif line and line != "#":
            raise ValueError(f"{path}:{number}: {line!r}")
    return kernels


def is_cuda_source(base):
    """Whether it is CUDA as its authors write it: tests/cuda_sources has those of two dots."""
    return base.count(".") == 2


def namespace_of(source, number, kernel):
    """The includes and the rest of a kernel's file, which is in a namespace."""
    folder = "tests/cuda_sources" if is_cuda_source(kernel.base) else "kernels/sandbox/naive"
    lines = (source / folder / kernel.base).read_text(encoding="utf-8").splitlines()
    body = "\n".join(line for line in lines if not line.startswith("#include"))
    changes = kernel.changes + [['.name = "naive"', f'.name = "{kernel.name}"'],
                                [PROFILE.search(body).group(), f'.profile = "{kernel.profile}"'],
                                [EXPORT, "const verbatim_kernel* at(int32_t index)"]]
    for old, new in changes:
        if body.count(old) != 1:
            raise ValueError(f"{kernel.name} of {kernel.base}: {old!r} is there {body.count(old)} times")
        body = body.replace(old, new)
    return [line for line in lines if line.startswith("#include")], f"namespace k{number} {{\n{body}\n}}"


def written(source, file, kernels):
    """Writes a file with all of these kernels, each in a namespace."""
    parts = [namespace_of(source, number, kernel) for number, kernel in enumerate(kernels)]
    text = list(dict.fromkeys(include for includes, _ in parts for include in includes))
    text += [body for _, body in parts]
    table = ", ".join(f"k{number}::at" for number in range(len(kernels)))
    text.append(f"{EXPORT} {{\n    static const verbatim_kernel* (*const all[])(int32_t) = {{{table}}};\n"
                f"    return index < {len(kernels)} ? all[index](0) : nullptr;\n}}\n")
    file.write_text("\n".join(text), encoding="utf-8")
    return file


def libraries(source, folder, kernels):
    """By base, the file that the command is given: one library of all naive kernels for a machine, and so without the
    edges that a source's constants are; a CUDA source, which the command translates, is a file."""
    given = {}
    for ending in (".cc", ".cu"):
        naive = [kernel for kernel in kernels if kernel.base.endswith(ending) and not is_cuda_source(kernel.base)]
        if naive:
            file = written(source, folder / f"naive{ending}", naive)
            library = file.with_suffix(f"{ending}.so")
            subprocess.run(["g++", "-std=c++20", "-O2", "-g", "-march=native", "-ffp-contract=off", "-fPIC", "-shared",
                            f"-I{source}", "-x", "c++", file, "-o", library], check=True)
            given |= {kernel.base: library for kernel in naive}
    sources = by_base([kernel for kernel in kernels if is_cuda_source(kernel.base)])
    return given | {base: written(source, folder / f"library_{base}", group) for base, group in sources.items()}


def ask(program, verb, operation, file, *more):
    """A report for each kernel of the file that is asked for; the seconds of one."""
    begin = time.monotonic()
    done = subprocess.run([program, "kernel", verb, operation, "--file", file, "--effort", "short", "--format", "json",
                           "--time-limit", "60", *more], capture_output=True, text=True, check=False)
    try:
        reports = json.loads(done.stdout)
    except ValueError:
        raise RuntimeError(f"{file}: {done.stderr}") from None
    reports = reports if isinstance(reports, list) else [reports]
    return {report["kernel"]: report for report in reports}, (time.monotonic() - begin) / len(reports)


def said(verb, report):
    """What a report says of its kernel."""
    if verb == "invariance" and report["invariant"] and report["verdict"] in ("varies", "pass"):
        return ",".join(name for name, holds in report["invariant"].items() if not holds) or "pass"
    return report["verdict"]


def by_base(kernels):
    groups = collections.defaultdict(list)
    for kernel in kernels:
        groups[kernel.base].append(kernel)
    return groups


def is_cheap(kernel):
    """Of a good kernel: whether `invariance` is part of the short run."""
    return kernel.profile == "exact" and kernel.base.endswith(".cc") and kernel.operation() != "attention"


def check(program, source, folder, kernels, rows):
    """Differences; adds (kernel, verb, seconds) to rows."""
    wrong = []
    without_edges = libraries(source, folder, [kernel for kernel in kernels
                                               if kernel.says == "pass" or kernel.verb == "invariance"])
    for base, group in by_base(kernels).items():
        are_good = group[0].says == "pass"
        file = without_edges[base] if are_good else written(source, folder / f"corpus_{base}", group)
        reports, seconds = ask(program, "check", group[0].operation(), file, "--kernel", "all")
        for kernel in group:
            # What depends on its company keeps the bound.
            wanted = kernel.says if kernel.verb == "check" else "pass"
            wrong += difference(kernel, "check", reports[kernel.name], wanted)
            if kernel.verb == "check":
                rows.append((kernel, "check", seconds))
            else:
                report, once = ask(program, "invariance", kernel.operation(), without_edges[base], "--kernel",
                                   kernel.name)
                wrong += difference(kernel, "invariance", report[kernel.name], kernel.says)
                rows.append((kernel, "invariance", once))
            if are_good and is_cheap(kernel):
                report, _ = ask(program, "invariance", kernel.operation(), without_edges[base], "--kernel",
                                   kernel.name)
                wrong += difference(kernel, "invariance", report[kernel.name], "pass")
        print(f"{base}: {len(group)} kernels, {len(wrong)} not as they should be so far", flush=True)
    return wrong


def difference(kernel, verb, report, wanted):
    says = said(verb, report)
    if says == wanted:
        return []
    failure = report["first_failure"] or {}
    text = (f"{kernel.base} {kernel.name}: {verb} says {says!r}, wanted {wanted!r}: {failure.get('detail', '')} "
            f"{failure.get('sizes', '')}")
    print(text, flush=True)
    return [text]


def many_seeds(program, source, folder, kernels, seeds, hours):
    """False alarms of the good ones. Seeds in rounds, so that a run that its hours end has tried all files alike."""
    files = libraries(source, folder, kernels)
    bases = {base: (files[base], group) for base, group in by_base(kernels).items()}
    end, tried, alarms = time.monotonic() + 3600 * hours, collections.Counter(), collections.Counter()
    for seed in seeds:
        if time.monotonic() > end:
            break
        for base, (library, group) in bases.items():
            for name, report in ask(program, "check", group[0].operation(), library, "--kernel", "all",
                                    "--seed", str(seed))[0].items():
                if report["verdict"] != "pass":
                    alarms[base] += 1
                    print(f"{base} {name}, seed {seed}: {report['verdict']}: {report['first_failure']}", flush=True)
            tried[base] += 1
        if seed in (seeds[0], seeds[-1]) or seed % 10 == 0:
            print(f"seed {seed}: " + ", ".join(f"{base} {tried[base]}" for base in bases), flush=True)
    for base, (_, group) in bases.items():
        print(f"{base}: {len(group)} kernels, {tried[base]} seeds, {alarms[base]} false alarms")
    return list(alarms.elements())


def refused_by_nvcc(nvcc, source, folder, kernels):
    """The good CUDA kernels' files that nvcc refuses."""
    wrong = []
    for base, group in by_base([kernel for kernel in kernels if kernel.base.endswith(".cu")]).items():
        done = subprocess.run([nvcc, "-std=c++20", "-arch=sm_90a", "-fmad=false", "-w", "-cubin", f"-I{source}",
                               written(source, folder / base, group), "-o", folder / "kernels.cubin"],
                              capture_output=True, text=True, check=False)
        verdict = "refused" if done.returncode else "compiled"
        print(f"{base}: {len(group)} kernels, {verdict}\n{done.stderr}", flush=True)
        wrong += [base] * (done.returncode != 0)
    return wrong


def print_table(rows):
    kinds = collections.defaultdict(list)
    for kernel, verb, seconds in rows:
        kinds[kernel.kind].append((kernel, verb, seconds))
    print("| kind | kernels | verb | verdicts | seconds each |\n|---|---|---|---|---|")
    for kind, found in kinds.items():
        says = sorted({kernel.says for kernel, _, _ in found})
        times = [seconds for _, _, seconds in found]
        print(f"| {kind} | {len(found)} | {', '.join(sorted({verb for _, verb, _ in found}))} | {', '.join(says)} | "
              f"{min(times):.1f} ... {max(times):.1f} |")


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("program")
    flags.add_argument("source", type=pathlib.Path)
    flags.add_argument("--part", choices=["good", "faulty"])
    flags.add_argument("--seeds", type=int, default=0)
    flags.add_argument("--first-seed", type=int, default=1)
    flags.add_argument("--hours", type=float, default=10)
    flags.add_argument("--nvcc")
    flags.add_argument("--only", default="")
    flags.add_argument("--table", action="store_true")
    given = flags.parse_args()
    here = given.source / "tests/kernel_corpus"
    rows = []
    good, faulty = ([kernel for kernel in read(here / name) if re.search(given.only, f"{kernel.base} {kernel.name}")]
                    for name in ("good.txt", "faulty.txt"))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        if given.nvcc:
            wrong = refused_by_nvcc(given.nvcc, given.source, folder, good)
        elif given.seeds:
            wrong = many_seeds(given.program, given.source, folder, good,
                               range(given.first_seed, given.first_seed + given.seeds), given.hours)
        else:
            wrong = [] if given.part == "faulty" else check(given.program, given.source, folder, good, rows)
            wrong += [] if given.part == "good" else check(given.program, given.source, folder, faulty, rows)
    if given.table:
        print_table(rows)
    print(f"{len(good)} good kernels, {len(faulty)} faulty ones, {len(wrong)} not as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
