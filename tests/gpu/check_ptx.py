#!/usr/bin/env python3
"""Looks at what nvcc makes of the exact kernels, for an architecture and with the options that the build has.

- The PTX of every kernel contains no floating-point instruction but those of NUMERICS N1: nothing approximate, nothing
  that flushes subnormals, no contraction that the source did not write, no binary64. The kernels of tensor.sm90, and
  they alone, multiply on tensor cores, each with the one mma that its numerics describe.
- Every array in shared memory begins at a multiple of 16 bytes, as load4 and store4 need it: the emulator's always do.
- No kernel spills, none has a stack frame; on architectures that are only compiled a few registers may.

An architecture that the build has is read from its object, by cuobjdump (tests/gpu/sass.py finds it); others, and all
where there is no cuobjdump, are compiled here. All checks are first tried on texts that must fail.
"""

import argparse
import pathlib
import re
import subprocess
import sys

import sass

# add, sub, mul, fma, div, rcp (1 / x) and sqrt to nearest even; comparing, selecting, moving, exact conversions, and
# the floor of what is not negative.
ALLOWED = re.compile(
    r"(add|sub|mul|fma|div|rcp|sqrt)\.rn\.f32"
    r"|setp\.[a-z]+\.f32|selp\.f32|mov\.f32|neg\.f32|abs\.f32"
    r"|(ld|st)\.[a-z0-9_.:]+\.f32|cvt\.rn\.f32\.[su](32|64)|cvt\.rzi\.u64\.f32"
)
TENSOR_KERNEL = "Tensor"
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
HOPPER_KERNEL = "Hopper"
GROUP_MMA = re.compile(r"wgmma\.mma_async\.sync\.aligned\.m64n(64|128|192|256)k16\.f32\.bf16\.bf16")
GROUP_ORDER = re.compile(r"wgmma\.(fence|commit_group|wait_group)\.sync\.aligned")
INSTRUCTION = re.compile(r"^\s*(?:@!?%p\d+\s+)?([a-z][a-z0-9_]*(?:\.[a-z0-9_:]+)+)\s")
FLOATING = re.compile(r"\.(f16x2|f16|bf16x2|bf16|tf32|f32|f64)\b")
SHARED_ARRAY = re.compile(r"\.shared \.align (\d+) \.b8 (\w+)\[")
FEW_BYTES = 32  # of stack and spills


def is_allowed(kernel, instruction):
    if not FLOATING.search(instruction) and not instruction.startswith(("mma.", "wmma.", "wgmma.")):
        return True
    if ALLOWED.fullmatch(instruction):
        return True
    if GROUP_MMA.fullmatch(instruction) or GROUP_ORDER.fullmatch(instruction):
        return kernel.startswith(HOPPER_KERNEL)
    return instruction == MMA and kernel.startswith(TENSOR_KERNEL)


def forbidden_instructions(ptx):
    """(kernel, instruction) of everything floating that is not allowed."""
    found, kernel = [], "?"
    for line in ptx.splitlines():
        if ".entry" in line:
            kernel = sass.kernel_name(line) or line.strip()
        match = INSTRUCTION.match(line)
        if match and not is_allowed(kernel, match.group(1)):
            found.append((kernel, match.group(1)))
    return found


def without_mma(ptx, architecture="90a"):
    """The kernels of tensor.sm90 that multiply without tensor cores. Those on warpgroups do so on Hopper alone."""
    kernels, multiplying, kernel = set(), set(), "?"
    for line in ptx.splitlines():
        if ".entry" in line and sass.kernel_name(line):
            kernel = sass.kernel_name(line)
            kernels.add(kernel)
        if MMA in line or GROUP_MMA.search(line):
            multiplying.add(kernel)
    ours = (TENSOR_KERNEL, HOPPER_KERNEL) if architecture == "90a" else (TENSOR_KERNEL,)
    return sorted(name for name in kernels - multiplying if name.startswith(ours))


def misaligned(ptx):
    """Arrays in shared memory that nothing but luck puts where 16 bytes can be read at once."""
    return [name for alignment, name in SHARED_ARRAY.findall(ptx) if int(alignment) < 16]


def resource_usage(ptxas_output):
    """kernel -> bytes of stack and spills, from ptxas -v."""
    usage, kernel, memory = {}, None, 0
    for line in ptxas_output.splitlines():
        if "Compiling entry function" in line:
            kernel = sass.kernel_name(line) or line
        stack = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)
        if stack:
            memory = sum(int(figure) for figure in stack.groups())
        if "Used" in line and "registers" in line and kernel:
            usage[kernel] = max(usage.get(kernel, 0), memory)
    return usage


def memory_of(resources):
    """kernel -> bytes of stack, spills among them, from cuobjdump -res-usage."""
    found = re.findall(r"Function (\S+):\s+REG:\d+ STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", resources)
    return {sass.kernel_name(name) or name: int(stack) + int(local) for name, stack, local in found}


def is_generic(name):
    """Whether the instruction is a load or store that does not say of which memory."""
    return name.startswith(("ld.", "st."))


def in_memory(usage):
    return [f"{kernel}: {memory} bytes of stack and spills" for kernel, memory in sorted(usage.items()) if memory > 0]


def check_the_checks():
    for bad in ("ex2.approx.ftz.f32", "add.ftz.f32", "fma.rn.ftz.f32", "div.full.f32", "mad.f32", "add.rz.f32",
                "sin.approx.f32", "mul.f64", "cvt.rn.bf16.f32", "max.f32"):
        assert forbidden_instructions(f"\t{bad} \t%f1, %f2;") == [("?", bad)], bad
        assert forbidden_instructions(f"\t@%p1 {bad} \t%f1, %f2;") == [("?", bad)], bad
    for good in ("fma.rn.f32", "setp.gt.f32", "ld.global.f32", "st.shared.v4.f32", "rcp.rn.f32", "add.s64",
                 "dp4a.s32.s32"):
        assert forbidden_instructions(f"\t{good} \t%f1, %f2;") == [], good
    tensor = ".entry _Zon_device12TensorMatmulEEEvT_(\n"
    exact = ".entry _Zon_device6MatmulEEEvT_(\n"
    assert forbidden_instructions(exact + f"\t{MMA} \t{{%f1}};") == [("Matmul", MMA)]
    assert forbidden_instructions(tensor + f"\t{MMA} \t{{%f1}};") == []
    for bad in ("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32",
                "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"):
        assert forbidden_instructions(tensor + f"\t{bad} \t{{%f1}};") == [("TensorMatmul", bad)], bad
    hopper = ".entry _Zon_device12HopperMatmulEEEvT_(\n"
    group = "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16"
    assert forbidden_instructions(hopper + f"\t{group} \t{{%f1}};") == []
    assert forbidden_instructions(hopper + "\twgmma.fence.sync.aligned;\n") == []
    assert forbidden_instructions(tensor + f"\t{group} \t{{%f1}};") == [("TensorMatmul", group)]
    assert forbidden_instructions(hopper + f"\t{MMA} \t{{%f1}};") == [("HopperMatmul", MMA)]
    assert without_mma(hopper) == ["HopperMatmul"]
    assert without_mma(hopper, "80") == []
    assert without_mma(hopper + f"\t{group} \t{{%f1}};\n") == []
    assert without_mma(tensor + exact) == ["TensorMatmul"]
    assert without_mma(tensor + f"\t{MMA} \t{{%f1}};\n" + exact) == []
    arrays = ".shared .align 16 .b8 good[64];\n.shared .align 4 .b8 bad[64];\n.shared .align 8 .u64 scalar;\n"
    assert misaligned(arrays) == ["bad"]
    line = "ptxas info : Compiling entry function '_Zon_device4ScanEEEvT_' for 'sm_80'\n"
    spilled = resource_usage(line + "0 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\nUsed 9 registers")
    assert spilled == {"Scan": 12}, spilled
    assert in_memory(spilled) == ["Scan: 12 bytes of stack and spills"]
    assert in_memory({"Scan": 0}) == []
    resources = " Function _Zon_device4ScanEEEvT_:\n  REG:24 STACK:400 SHARED:0 LOCAL:8 CONSTANT[0]:536\n"
    assert memory_of(resources) == {"Scan": 408}
    assert is_generic("ld.f32") and not is_generic("fma.rn.ftz.f32")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--source-dir", type=pathlib.Path, required=True)
    parser.add_argument("--work-dir", type=pathlib.Path, required=True)
    parser.add_argument("--architecture", required=True, help="as CMake has it: 90a")
    parser.add_argument("--only-compiled", action="store_true",
                        help="no build is made for it: generic accesses and small spills are reported")
    parser.add_argument("--object", help="that the build made of kernels/cuda/gpu_device.cu for this architecture")
    parser.add_argument("--options", required=True, help="nvcc's, separated by commas")
    args = parser.parse_args()
    check_the_checks()
    args.work_dir.mkdir(parents=True, exist_ok=True)
    ptx, usage = built(args) or compiled(args, args.architecture)
    print(f"sm_{args.architecture}: {ptx.count('.entry')} kernels, {len(usage)} assembled")
    forbidden = forbidden_instructions(ptx)
    if args.only_compiled:
        generic = sorted({f"{kernel}: generic {name[:2]}" for kernel, name in forbidden if is_generic(name)})
        few = {kernel: memory for kernel, memory in usage.items() if memory <= FEW_BYTES}
        print("\n".join(in_memory(few) + generic))
        usage = {kernel: memory for kernel, memory in usage.items() if memory > FEW_BYTES}
        forbidden = [(kernel, name) for kernel, name in forbidden if not is_generic(name)]
    problems = [f"{kernel}: {name}" for kernel, name in forbidden] + in_memory(usage)
    problems += [f"{kernel}: no {MMA}" for kernel in without_mma(ptx, args.architecture)]
    problems += [f"{name}: not aligned to 16 bytes" for name in misaligned(ptx)]
    problems += [] if usage and ".entry" in ptx else [f"no kernels for sm_{args.architecture}"]
    print("\n".join(problems))
    return 1 if problems else 0


def built(args):
    """As `compiled`, from the build's object. None: there is no such object, or no cuobjdump."""
    if args.object is None:
        return None
    try:
        cuobjdump = sass.find_cuobjdump(args.nvcc, args.work_dir)
    except sass.NoTool as reason:
        print(f"compiled again: {reason}")
        return None
    ptx, resources = (sass.dumped(cuobjdump, what, args.object, args.architecture) for what in ("-ptx", "-res-usage"))
    return ptx, memory_of(resources)


def compiled(args, architecture):
    """The kernels' PTX, and what ptxas says of their registers."""
    ptx_file = args.work_dir / f"kernels_{architecture}.ptx"
    target = f"-arch=sm_{architecture}"
    subprocess.run([args.nvcc, "-ptx", "-std=c++20", "-O3", *args.options.split(","), target, f"-I{args.source_dir}",
                    f'-DVERBATIM_CUDA_ARCHITECTURES="{architecture}"',
                    str(args.source_dir / "kernels/cuda/gpu_device.cu"), "-o", str(ptx_file)], check=True)
    assembled = subprocess.run([str(pathlib.Path(args.nvcc).parent / "ptxas"), "-v", target, str(ptx_file), "-o",
                                str(ptx_file.with_suffix(".cubin"))], check=True, capture_output=True, text=True)
    return ptx_file.read_text(), resource_usage(assembled.stderr + assembled.stdout)


if __name__ == "__main__":
    sys.exit(main())
