"""The libraries run on any x86-64 processor: instructions of AVX and BMI stand only in functions that the program
chooses when it runs (kernels/cpu/ops/cpu_ops.cc), and none of those can take the place of another file's.

    check_baseline.py LIBRARY.a...

A function is chosen when it is a clone for an architecture (target_clones), a local one of a file that is compiled for
an instruction set (avx*.cc, fast_avx*.cc), or a local one that has the set in its name (kernels/bench). An
inline function of such a file is global and weak: the linker keeps one of all copies, which every processor would run.
"""

import re
import subprocess
import sys

MEMBER = re.compile(r"^(\S+\.o):\s+file format")
FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
CHOSEN_FILE = re.compile(r"^(fast_)?avx\w*\.cc\.o$")
CHOSEN_NAME = re.compile(r"_(avx2|avx512|dpbf16)E")
BEYOND_BASELINE = re.compile(
    r"^\s+[0-9a-f]+:\s+(v(?!err|erw|m)\w+\s.*%[xyz]mm|(andn|bextr|bls\w+|mulx|pdep|pext|rorx|sarx|shlx|shrx)\s)")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, errors="replace").stdout


def weak_functions(library):
    """(member, function) of functions that may be taken from another file."""
    found, member = set(), ""
    for line in output("nm", "--defined-only", library).splitlines():
        if line.endswith(".o:"):
            member = line[:-1]
        elif re.match(r"[0-9a-f]+ [WVu] ", line):
            found.add((member, line.split(" ", 2)[2]))
    return found


def users(library):
    """(member, function): its first instruction beyond the baseline."""
    found, member, function = {}, "", ""
    for line in output("objdump", "-d", "--no-show-raw-insn", library).splitlines():
        if match := MEMBER.match(line):
            member = match[1]
        elif match := FUNCTION.match(line):
            function = match[1]
        elif BEYOND_BASELINE.match(line):
            found.setdefault((member, function), line.strip())
    return found


def main():
    num_chosen, problems = 0, []
    for library in sys.argv[1:]:
        weak = weak_functions(library)
        for (member, function), line in users(library).items():
            is_chosen = CHOSEN_FILE.match(member) or CHOSEN_NAME.search(function)
            if ".arch_" in function or (is_chosen and (member, function) not in weak):
                num_chosen += 1
            else:
                problems.append(f"{library}: {member}: {function}: {line}")
    print("\n".join(problems))
    print(f"{num_chosen} functions are for an instruction set, {len(problems)} others have its instructions")
    assert num_chosen > 100, "no function of an instruction set was seen: are these the right libraries?"
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
