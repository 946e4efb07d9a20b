#!/usr/bin/env python3
"""Looks at the machine code of sm_90a in the object that the build made of the kernels.

- No kernel has local memory: no spills, no stack, no array that lies in memory instead of registers.
- No kernel waits until all memory has what it wrote, but those whose blocks hand on to each other by atomics.
- Those of tests/gpu/sass_expectations.txt ask for as many bytes before they wait, hide a load behind as many
  multiplications, ask for as much before the kernel before has ended, and multiply in loops as short, which bring as
  much, as it says there. Registers count only where a block would not fit.

All checks are first tried on texts that must fail. Without cuobjdump and without PyPI it is skipped.
"""

import argparse
import pathlib
import re
import sys

import sass

SKIPPED = 77
REGISTERS = 65536  # of a processor


def problems_of(kernel, code, registers, expected):
    """What `expected`, a line of the file or None, does not find."""
    found = []
    if code.count("LDL", "STL") > 0:
        found.append(f"{code.count('LDL', 'STL')} instructions on local memory: spills or an array that is indexed")
    if code.far_fences > 0 and code.count("ATOM", "ATOMG") == 0:
        found.append(f"{code.far_fences} fences of all memory, and no other block is handed anything")
    if expected is None:
        return [f"{kernel}: {text}" for text in found]
    threads, under_way, hidden, early, multiplications, instructions, brings = expected
    warp_registers = (registers * 32 + 255) // 256 * 256
    if warp_registers * ((threads + 31) // 32) > REGISTERS:
        found.append(f"{registers} registers: a block of {threads} threads does not fit a processor")
    if code.bytes_under_way < under_way:
        found.append(f"{code.bytes_under_way} bytes are asked for before the first is used, {under_way} are expected")
    if code.hidden < hidden:
        found.append(f"{code.hidden} multiplications stand between a load and its use, {hidden} are expected")
    if code.asked_early < early:
        found.append(f"{code.asked_early} wide loads come before the wait for another kernel, {early} are expected")
    ffma, tensor, length = code.inner_loop() or (0, 0, 0)
    if max(ffma, tensor) < multiplications:
        found.append(f"the loop has {ffma} FFMA (an IDP is four) and {tensor} HMMA, {multiplications} are expected")
    if length > instructions:
        found.append(f"the loop has {length} instructions, {instructions} at most are expected")
    if code.brings() < brings:
        found.append(f"the loop brings {code.brings()} times for those that follow, {brings} are expected")
    return [f"{kernel}: {text}" for text in found]


def all_problems(kernels, registers, expectations):
    of_formats = {re.sub("<.*>", "<*>", kernel) for kernel in kernels}
    gone = sorted(set(expectations) - set(kernels) - of_formats)
    found = [f"{kernel}: in the file of expectations, but not compiled" for kernel in gone]
    for kernel, code in sorted(kernels.items()):
        found += problems_of(kernel, code, registers.get(kernel, 0), sass.expected_of(kernel, expectations))
    return found


def function(*instructions):
    """As cuobjdump prints it."""
    lines = ["\t\tFunction : _Zon_device4ScanEEEvT_"]
    lines += [f"        /*{16 * i:04x}*/    {text} ;   /* 0x0 */" for i, text in enumerate(instructions)]
    return sass.kernels_of("\n".join(lines))["Scan"]


def check_the_checks():
    first, second, use = "LDG.E.128 R4, [R2.64]", "LDG.E.128 R8, [R2.64+0x10]", "FFMA R1, R5, R9, R1"
    early = function(first, second, "FFMA R1, R20, R21, R1", use)
    late = function(first, use, second, use)
    assert (early.bytes_under_way, early.hidden) == (32, 2), early
    assert (late.bytes_under_way, late.hidden) == (16, 1), late
    assert function("@!P0 LDG.E R4, [R4.64]", "STG.E [R2.64], R4").bytes_under_way == 4
    assert function("LDG.E.64 R4, [R2.64]", "MOV R5, RZ", "LDG.E R6, [R2.64]").bytes_under_way == 8  # R4, R5 came
    mma = "HMMA.16816.F32.BF16 R4, R8, R12, R4"
    nested = function("FFMA R1, R2, R3, R1", mma, mma, "@P0 BRA 0x10", "NOP", "@P1 BRA 0x0", "EXIT")
    assert nested.inner_loop() == (0, 2, 3) and nested.instructions == 6, nested
    assert nested.outer_loop() == (1, 0, 2)
    assert function("EXIT").inner_loop() is None
    bytes_of_four = function("FFMA R1, R2, R3, R1", "IDP.4A.S8.S8 R4, R5, R6, R4", "@P0 BRA 0x0")
    assert bytes_of_four.inner_loop() == (5, 0, 3)
    spilled = function("STL [R1], R4", "LDL R4, [R1]")
    (only,) = problems_of("Scan", spilled, 8, None)
    assert only.startswith("Scan: 2 instructions on local memory"), only
    assert problems_of("Scan", nested, 255, (256, 0, 0, 0, 2, 3, 0)) == []
    for expected, part in (((256, 0, 0, 0, 2, 3, 0), "does not fit"), ((64, 4, 0, 0, 2, 3, 0), "before the first"),
                           ((64, 0, 9, 0, 2, 3, 0), "between a load"),
                           ((64, 0, 0, 1, 2, 3, 0), "the wait for another"),
                           ((64, 0, 0, 0, 3, 3, 0), "the loop has 0 FFMA (an IDP is four) and 2 HMMA"),
                           ((64, 0, 0, 0, 2, 2, 0), "3 instructions, 2 at most"),
                           ((64, 0, 0, 0, 2, 3, 1), "brings 0 times for")):
        registers = 257 if "fit" in part else 64
        (only,) = problems_of("Scan", nested, registers, expected)
        assert part in only, only
    assert function(mma, "LDGSTS.E.BYPASS.128 [R1], [R2.64]", "UBLKCP [UR4], [UR6], UR8", "@P0 BRA 0x0").brings() == 2
    asked = function(first, "LDG.E R20, [R18.64]", "LDGSTS.E.BYPASS.128 [R1], [R2.64]", "UBLKCP [UR4], [UR6], UR8",
                     "ACQBULK", second, "ACQBULK")
    assert (asked.asked_early, early.asked_early) == (3, 0), asked
    far, near, atomic = "MEMBAR.ALL.GPU", "MEMBAR.ALL.CTA", "ATOM.E.ADD.S32.STRONG.GPU PT, R1, [R2.64], R3"
    (only,) = problems_of("Scan", function(near, far), 8, None)
    assert only.startswith("Scan: 1 fences of all memory"), only
    assert problems_of("Scan", function(far, atomic), 8, None) == problems_of("Scan", function(near), 8, None) == []
    (only,) = all_problems({}, {}, {"Gone": (64, 0, 0, 0, 0, 0, 0)})
    assert only == "Gone: in the file of expectations, but not compiled"
    mangled = "_Z12run_residentINS0_9on_device11BlockMatvecINS3_9BlocksQ4KELi1EEEEEvT_"
    assert sass.kernel_name(mangled) == "BlockMatvec1<Q4K>" and sass.kernel_name("main") is None
    assert sass.kernel_name("_Z3runINS0_9on_device11EmbedBlocksINS3_10BlocksInt4EEEEEvT_") == "EmbedBlocks<Int4>"
    of_formats = {"Scan<*>": (64, 0, 0, 0, 2, 3, 0)}
    assert all_problems({"Scan<Q4K>": nested}, {}, of_formats) == []
    (only,) = all_problems({"Scan<Q4K>": early}, {}, of_formats)
    assert only.startswith("Scan<Q4K>: the loop has 0 FFMA ("), only
    nested_name = "_ZNS0_9on_device13IntegerMatvecINS3_9BlocksQ4KELi8EEEEEvT_"
    assert sass.kernel_name(nested_name) == "IntegerMatvec8<Q4K>"
    usage = " Function _Zon_device4ScanEEEvT_:\n  REG:120 STACK:0 SHARED:0 LOCAL:0\n"
    assert sass.registers_of(usage) == {"Scan": 120}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--object", required=True, help="that the build made of kernels/cuda/gpu_device.cu")
    parser.add_argument("--source-dir", type=pathlib.Path, required=True)
    parser.add_argument("--work-dir", type=pathlib.Path, required=True)
    args = parser.parse_args()
    check_the_checks()
    try:
        cuobjdump = sass.find_cuobjdump(args.nvcc, args.work_dir)
    except sass.NoTool as reason:
        print(f"skipped: {reason}")
        return SKIPPED
    kernels, registers = sass.read_object(cuobjdump, args.object, "90a")
    print(f"sm_90a: {len(kernels)} kernels, {sum(code.instructions for code in kernels.values())} instructions")
    expectations = sass.read_expectations(args.source_dir / "tests/gpu/sass_expectations.txt")
    problems = all_problems(kernels, registers, expectations)
    problems += [] if kernels else ["the object has no kernels for sm_90a"]
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
