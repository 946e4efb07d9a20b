#!/usr/bin/env python3
"""Writes docs/measurements/gpu-forecast.md: bounds of what the kernels may reach on an H100, kernel by kernel, from
their machine code (tests/gpu/sass.py) and the bytes that must move, against the measurements of gpu_benchmark if its
record is given.

    tests/gpu/forecast.py --object build/release/.../gpu_device.cu.o --nvcc NVCC --work-dir DIR [--measured RECORD]

A line's time is the longest of four: its bytes at what the loads under way can keep busy, what its blocks bring from
L2, its warp instructions at one for each scheduler and clock, its tensor multiplications at what mma.sync or wgmma
reaches. Launches, tails and small grids are not in it.
"""

import argparse
import pathlib
import re
import sys

import sass

SKIPPED = 77

# Of an H100 SXM. Data sheet: processors, clock, schedulers, registers, warps, bf16 multiplications a clock.
PROCESSORS, CLOCK, SCHEDULERS, REGISTERS, MOST_WARPS, TENSOR_RATE = 132, 1.755e9, 4, 65536, 64, 2048
L2 = 7.0e12        # bytes a second from L2 to all processors, assumed
COPY = 3.0e12      # bytes a second that a copy kernel reaches, assumed
LATENCY = 0.6e-6   # seconds from a load to its value under load, assumed
MMA_SYNC = 0.62    # of the tensor rate, as published for mma.sync on Hopper
WGMMA = 0.95       # assumed


def matmul(rows, outputs, k, kernel, profile, processors=PROCESSORS, from_l2=0.0):
    # gpu_benchmark's own words, so that its line is found.
    return (rf"matmul {profile} +{rows} x +{outputs} x +{k} ", kernel, 2.0 * outputs * k, float(rows * outputs * k),
            processors, from_l2)


def in_blocks(rows, outputs, k, kernel, profile, block_outputs, block_rows):
    """Each block brings its weights and its rows."""
    blocks = -(-outputs // block_outputs) * -(-rows // block_rows)
    return matmul(rows, outputs, k, kernel, profile, PROCESSORS, blocks * 2.0 * k * (block_outputs + block_rows))


def in_items(rows, outputs, k, kernel, profile, block_rows):
    """Weights once, a chunk's inputs for each panel of 128 outputs, sums of chunks of 512 written and read."""
    return matmul(rows, outputs, k, kernel, profile, PROCESSORS,
                  2.0 * outputs * k + outputs / 128 * 2.0 * block_rows * k + 2 * 4.0 * block_rows * outputs * k / 512)


# The format's name in kernels, and bytes of 256 weights as block_layout.h has them.
BLOCKS = {"Q8_0": ("Q80", 272), "Q4_0": ("Q40", 144), "Q4_K": ("Q4K", 148), "Q6_K": ("Q6K", 212), "FP8": ("Fp8", 288),
          "int4": ("Int4", 160), "MXFP4": ("Mxfp4", 136)}


def multiplications_of(kernel):
    """Of a kernel over quantised weights: what its loop multiplies with inputs, without the FFMA that dequantise."""
    name, rows, form = re.fullmatch(r"([A-Za-z]+)(\d+)<(\w+)>", kernel).groups()
    if name == "BlockMatmul":
        return 32 * int(rows)  # 16 of K, 4 outputs, half of the rows
    if name == "IntegerMatvec":
        return 128 * int(rows)  # a unit of 4 outputs
    whole_unit = rows == "1" and form not in ("Q80", "Int8", "Fp8")
    return 64 * int(rows) * (2 if whole_unit else 1)


def of_blocks():
    """Matmuls with quantised weights. In int8 more than 8 rows multiply by eights, each of which reads all weights."""
    in_exact = ((1, "BlockMatvec1"), (4, "BlockMatvec4"), (8, "BlockMatvec8"), (16, "BlockMatmul16"),
                (32, "BlockMatmul32"))
    in_int8 = ((1, "IntegerMatvec1"), (8, "IntegerMatvec8"), (32, "IntegerMatvec8"))
    records = 8192 * 4096 / 256

    def line(profile, form, rows, kernel, from_l2):
        name, size = BLOCKS[form]
        return (rf"matmul {profile} {form} +{rows} x +8192 x +4096 ", f"{kernel}<{name}>", records * size,
                float(rows * 8192 * 4096), PROCESSORS, from_l2)

    lines = [line("exact", form, rows, kernel, 0.0) for form in BLOCKS for rows, kernel in in_exact]
    lines += [line("exact.int8", form, rows, kernel, records * BLOCKS[form][1] * -(-rows // 8))
              for form in BLOCKS if form not in ("FP8", "MXFP4") for rows, kernel in in_int8]
    # A record's numbers, and the scales of its two groups.
    read = records * (256 + 2 * 4)
    lines += [(rf"matmul exact.fp8 FP8 +{rows} x +8192 x +4096 ", kernel, read, float(rows * 8192 * 4096), PROCESSORS,
               read)
              for rows, kernel in ((1, "Fp8GroupMatvec1"), (4, "Fp8GroupMatvec4"), (8, "Fp8GroupMatvec8"),
                                   (16, "Fp8GroupMatmul16"), (32, "Fp8GroupMatmul32"))]
    return lines


def all_lines():
    """(gpu_benchmark's line as a pattern, kernel, bytes that must move, multiplications, the processors that have a
    block, where these are not all, bytes from L2, where they are counted)"""
    lines = [matmul(1, 8192, 4096, "Matvec1", "exact"), matmul(1, 50176, 2048, "Matvec1", "exact")]
    lines += [matmul(rows, 8192, 4096, kernel, "exact")
              for rows, kernel in ((2, "Matvec2"), (4, "Matvec4"), (8, "Matmul8"), (16, "Matmul16"), (32, "Matmul32"))]
    # A block of four warps for four chunks of a tile (matmul_on.h), which are 128.
    lines += [matmul(rows, 2048, 4096, kernel, "exact", 128) for rows, kernel in ((8, "Matmul8"), (32, "Matmul32"))]
    lines.append(matmul(8192, 8192, 8192, "Matmul", "exact"))
    lines += [matmul(rows, 8192, 4096, kernel, "tensor.sm90")
              for rows, kernel in ((1, "TensorMatvec8"), (8, "TensorMatvec8"))]
    lines += [in_items(rows, 8192, 4096, f"TensorItems{rows}", "tensor.sm90", rows) for rows in (16, 32)]
    lines += [in_blocks(8192, 8192, 8192, "HopperMatmul", "tensor.sm90", 128, 192),
              in_blocks(8192, 8192, 8192, "TensorMatmul", "tensor.sm90 by mma.sync,", 192, 128),
              in_blocks(8192, 8192, 8192, "HopperFastMatmul", "fast", 128, 256)]
    # 64 sequences of 4096 positions, 40 heads of 64 over 8 of K and V: K and V once, q.k and p.v for each head.
    pairs = 64.0 * 4096 * 64
    for kernel, but in (("AttendRing5", ""), ("AttendRun5", " without bulk copies,")):
        lines.append((rf"decode attention exact{but} +64 sequences of 4096", kernel, pairs * 8 * 4, pairs * 40 * 2))
    lines.append((r"decode attention tensor.sm90 +64 sequences of 4096", "TensorAttendRing", pairs * 8 * 4, 0.0))
    # Each of 4096 rows sees half of the others. Five heads of a row share a block, so K and V come once a row from L2.
    lines.append((r"prefill attention exact 4096 rows, 40 heads of 64", "AttendRing5", 4096.0 * 64 * 8 * 4,
                  pairs / 2 * 64 * 40 * 2))
    # A block has 64 rows of a head, for which K and V come once from L2.
    for heads, head_dim in ((40, 64), (32, 128)):
        lines.append((rf"prefill attention tensor.sm90 4096 rows, {heads} heads of {head_dim}",
                      f"TensorAttendTile{head_dim}", 4096.0 * head_dim * 8 * 4,
                      4096.0 * 4096 / 2 * head_dim * heads * 2))
    # 4096 rows: binary32 read and written, bf16 written.
    for kernel, width, each in (("Swiglu", 8192, 4 + 4 + 2), ("AddBranch", 2048, 4 + 4 + 4),
                                ("RmsNorm", 2048, 4 + 4 + 2), ("GatedNorm", 4096, 4 + 4 + 4 + 2),
                                ("RoundRows", 4096, 4 + 2)):
        lines.append((rf"{kernel} of 4096 rows of {width}", kernel, 4096.0 * width * each, 0.0))
    # 128 heads of 64 channels, a state of 128: an element is read and written once, and takes two fma a token.
    elements = 128.0 * 64 * 128
    lines.append((r"state update of 64 sequences", "Scan", 64 * elements * 8, 64 * elements * 2))
    lines.append((r"scan of 1 sequences", "Scan", elements * 8, 2048 * elements * 2))
    return lines + of_blocks()


def resident_warps(registers, threads):
    warps = (threads + 31) // 32
    each = (registers * 32 + 255) // 256 * 256 * warps
    return min(REGISTERS // each * warps, MOST_WARPS // warps * warps)


def memory_share(code, warps):
    """Maximum share of the copy's bandwidth: requested bytes of a processor's threads over those that hide a load."""
    asked = warps * 32 * code.bytes_under_way
    if code.count(*sass.COPIES) > 0:
        return 1.0
    return min(1.0, asked / (COPY * LATENCY / PROCESSORS))


def attention_loop(code, columns):
    """(multiplications, instructions) of a tile of 64 positions and 64 dims: scores, p·v, each column's weights and
    what is added to its sums; loops are known by their FFMA. (0, 0): they are not there."""
    turns = {32 * columns: 4, 16 * columns: 8, 28: columns, 8: columns}  # FFMA of a turn: turns
    found = [code.loop_with(ffma) for ffma in turns]
    if None in found:
        return 0, 0
    return 2 * 64 * 64 * columns // 32, sum(length * number for length, number in zip(found, turns.values()))


def loop_of(kernel, code):
    if "<" in kernel:
        return multiplications_of(kernel), 0, (code.inner_loop() or (0, 0, 0))[2]
    # A tile's last positions, which some of its rows see and others do not, have a loop inside its loop.
    return code.outer_loop() if kernel.startswith("TensorAttendTile") else code.inner_loop()


def forecast(kernel, code, warps, num_bytes, multiplications, columns=0, processors=PROCESSORS, from_l2=0.0):
    """(seconds, which of the four)"""
    ffma, tensor, length = loop_of(kernel, code) or (0, 0, 0)
    if columns > 0:
        ffma, length = attention_loop(code, columns)
    times = {"memory": num_bytes / (COPY * memory_share(code, warps) * processors / PROCESSORS)}
    times["L2"] = from_l2 / L2
    issued = processors * SCHEDULERS * CLOCK
    if tensor == 0 and ffma > 0:
        times["instructions"] = multiplications / 32 * length / ffma / issued
    if tensor > 0:
        group = code.count("HGMMA") > 0  # four warps take 64 x 192 x 16 together
        each = 16 * 192 * 16 if group else 16 * 8 * 16
        times["instructions"] = multiplications / each * length / tensor / issued
        times["tensor cores"] = multiplications / (PROCESSORS * TENSOR_RATE * CLOCK * (WGMMA if group else MMA_SYNC))
    limit = max(times, key=times.get)
    return times[limit], limit


def measured_us(record, pattern):
    """Microseconds of gpu_benchmark's line, or None."""
    for line in record.splitlines():
        match = re.search(pattern + r".*?([0-9.]+) us", line)
        if match:
            return float(match.group(1))
    return None


def words(pattern):
    return re.sub(r" +", " ", pattern.replace(" +", " ")).strip()


def is_doubtful(kernel, limit):
    """Whether a bound is least believed: L2's, of matmuls on tensor cores."""
    return limit == "L2" and kernel in ("TensorMatmul", "HopperMatmul", "HopperFastMatmul")


def table(kernels, registers, expectations, record):
    names = ("`gpu_benchmark`", "kernel", "registers, warps", "under way", "loop", "limit", "at least", "at most",
             "measured")
    rows = [f"| {' | '.join(names)} |",
            "|---|---|---|---|---|---|---|---|---|"]
    for pattern, kernel, num_bytes, multiplications, *rest in all_lines():
        if kernel not in kernels:
            rows.append(f"| {words(pattern)} | `{kernel}` is not there any more | | | | | | | |")
            continue
        code, used = kernels[kernel], registers[kernel]
        expected = sass.expected_of(kernel, expectations)
        warps = resident_warps(used, expected[0] if expected else 256)
        columns = int(kernel[-1]) if kernel.startswith(("AttendRing", "AttendRun")) else 0
        seconds, limit = forecast(kernel, code, warps, num_bytes, multiplications, columns, *rest)
        ffma, tensor, length = loop_of(kernel, code) or (0, 0, 0)
        if columns > 0:
            ffma, length = attention_loop(code, columns)
        reached = f"{100 * num_bytes / seconds / COPY:.0f} % of the copy"
        if limit != "memory" and multiplications / seconds > 1e13:
            reached = f"{2e-12 * multiplications / seconds:.0f} TFLOP/s"
        found = measured_us(record, pattern)
        beside = f"{found:.1f} us ({100 * seconds * 1e6 / found:.0f} %)" if found else ""
        asked = "copies" if code.count(*sass.COPIES) > 0 else f"{warps * 32 * code.bytes_under_way / 1024:.0f} KiB"
        doubt = " (?)" if is_doubtful(kernel, limit) else ""
        rows.append(f"| {words(pattern)} | `{kernel}` | {used}, {warps} | {asked} | {tensor or ffma} in {length} "
                    f"| {limit}{doubt} | {seconds * 1e6:.1f} us | {reached} | {beside} |")
    return "\n".join(rows)


HEAD = """# GPU: bounds, kernel by kernel

Made by `tests/gpu/forecast.py` from the machine code of sm_90a and the bytes that must move; no GPU has been asked.
{source}

*Under way* is what a processor's threads have asked of memory before they need any of it; some {needed:.0f} KiB keep
an H100's memory busy. *Loop* is multiplications in the instructions of the loop that has most of them. The *limit* is
the longest of memory (a copy of {copy:.1f} TB/s, a load of {latency:.1f} us), L2 ({l2:.1f} TB/s to all
processors, assumed; counted for matmuls on tensor cores of 9 rows and more), instructions (one for each of
four schedulers and clock of {clock:.3f} GHz, on 132 processors) and tensor cores ({mma:.0f} % of their rate, as
published for mma.sync; {group:.0f} % for wgmma, assumed). Of large matmuls L2 is the limit, not the tensor cores:
each block brings its weights and its rows for itself. The goal of 550 TFLOP/s in *tensor.sm90* takes more than is
assumed of L2, or clusters whose blocks share what they bring, which there are not.

Launches, tails, barriers and dependent instructions are not in it, nor small grids, but that matmuls of 2048 outputs
have blocks for 128 processors, each with its share of the memory: it is the least time that the code allows, and a
measurement far above it names something else. *Decode attention* in tensor.sm90 has its
bytes alone; in exact its loop is a tile's scores, p·v, weights and sums. Blocks of elementwise kernels are taken for
256 threads. What `gpu_benchmark` has no line for is not measured by it: mma.sync where there is wgmma,
elementwise kernels. Of quantised weights, scales that a thread reads again from L1 or L2 are not counted. The last
column is filled by `--measured` with what `gpu_benchmark` printed.

It is a table of bounds, no forecast: what is beside the limit adds to it. (?) marks the doubtful ones: large matmuls by
mma.sync, to which the tensor rate's published share and all of L2 are granted, and those by wgmma, whose producer has a
MEMBAR behind its DEPBAR, which no figure here counts: on a GPU these are profiled first.

"""


def check_the_checks():
    loads = [f"        /*{16 * i:04x}*/    LDG.E.128 R{4 * i + 4}, [R2.64] ;" for i in range(2)]
    loop = ["        /*0020*/    FFMA R1, R4, R8, R1 ;", "        /*0030*/    @P0 BRA 0x20 ;"]
    code = sass.kernels_of("\n".join(["\t\tFunction : _Zon_device4ScanEEEvT_", *loads, *loop]))["Scan"]
    assert resident_warps(255, 256) == 8 and resident_warps(32, 64) == 64
    assert abs(memory_share(code, 4) - 4 * 32 * 32 / (COPY * LATENCY / PROCESSORS)) < 1e-9
    assert memory_share(code, 64) == 1
    assert forecast("Scan", code, 64, COPY, 0.0) == (1.0, "memory")
    assert forecast("Scan", code, 64, 0.0, 32 * PROCESSORS * SCHEDULERS * CLOCK) == (2.0, "instructions")
    assert forecast("Scan", code, 64, COPY, 0.0, 0, PROCESSORS // 2) == (2.0, "memory")
    assert forecast("Scan", code, 64, COPY, 0.0, 0, PROCESSORS, 2 * L2) == (2.0, "L2")
    assert [multiplications_of(f"Block{kernel}") for kernel in ("Matvec1<Q4K>", "Matvec1<Q80>", "Matvec8<Q4K>",
                                                                "Matmul16<Q4K>")] == [128, 64, 512, 512]
    assert is_doubtful("TensorMatmul", "L2") and not is_doubtful("TensorMatmul", "memory")
    assert in_blocks(400, 300, 64, "Scan", "fast", 128, 192)[-1] == 9 * 64 * 2 * 320
    tile = sass.kernels_of("\n".join(["\t\tFunction : _Zon_device4ScanEEEvT_", *loads, *loop]))["Scan"]
    assert tile.loop_with(1) == 2 and tile.loop_with(2) is None and attention_loop(tile, 5) == (0, 0)
    line = "matmul exact            1 x  8192 x  4096       25.5 us      2.6 TFLOP/s"
    assert measured_us(line, all_lines()[0][0]) == 25.5 and measured_us(line, all_lines()[1][0]) is None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--object", required=True)
    parser.add_argument("--work-dir", type=pathlib.Path, required=True)
    parser.add_argument("--measured", type=pathlib.Path, help="what gpu_benchmark printed")
    parser.add_argument("--out", type=pathlib.Path, help="instead of docs/measurements/gpu-forecast.md")
    args = parser.parse_args()
    check_the_checks()
    source = pathlib.Path(__file__).resolve().parent.parent.parent
    try:
        kernels, registers = sass.read_object(sass.find_cuobjdump(args.nvcc, args.work_dir), args.object, "90a")
    except sass.NoTool as reason:
        print(f"skipped: {reason}")
        return SKIPPED
    record = args.measured.read_text() if args.measured else ""
    expectations = sass.read_expectations(source / "tests/gpu/sass_expectations.txt")
    told = f"Measured: {args.measured.name}." if args.measured else "Nothing has been measured yet."
    head = HEAD.format(source=told, needed=COPY * LATENCY / PROCESSORS / 1024, copy=COPY * 1e-12, l2=L2 * 1e-12,
                       latency=LATENCY * 1e6, clock=CLOCK * 1e-9, mma=100 * MMA_SYNC, group=100 * WGMMA)
    out = args.out or source / "docs/measurements/gpu-forecast.md"
    out.write_text(head + table(kernels, registers, expectations, record) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
