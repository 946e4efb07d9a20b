#!/usr/bin/env python3
"""The tables of docs/measurements/simulator.md: what each cache mode reuses of each trace at each memory.

    python3 tools/sweep/cache_table.py --verbatim build/release/verbatim --model granite-4.0-h-micro

runs `verbatim sweep --cache-only` for every trace (the logs of traces/data and four generated shapes) and prints a
Markdown table; --timed RATES prints times to the first token of timed runs instead. Results are kept in --folder, so
that an interrupted run goes on.
"""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHAPES = ["documents", "one-shots", "tool-loops", "templates"]
LOGS = {
    "Mooncake": ("mooncake_conversation_trace.jsonl.gz", []),
    "agentic, 0.05/s": ("agentic_coding_sessions.jsonl.gz", ["--session-rate", "0.05"]),
    "agentic, 0.1/s": ("agentic_coding_sessions.jsonl.gz", ["--session-rate", "0.1"]),
}
DEVICES = {"h100_sxm": lambda gigabytes: gigabytes <= 80, "h200_sxm": lambda gigabytes: gigabytes > 80}
MODES = ["prefix", "exact", "block-aligned", "vllm-align", "sglang-radix", "sglang-radix-pools",
         "sglang-radix-no-buffer", "marconi", "attention"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbatim", default=str(ROOT / "build/release/verbatim"))
    parser.add_argument("--model", default="granite-4.0-h-micro")
    parser.add_argument("--memory", default="25GB,40GB,60GB,120GB", help="in GB; above 80 an H200")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--traces", default=",".join([*LOGS, *SHAPES]).replace(", ", "; "),
                        help="names as in the table, with ; for a comma inside a name")
    parser.add_argument("--timed", help="rates, such as 0.5,1,2: mean and 95th percentile of the time to first token")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("cache_table"))
    return parser.parse_args()


def run(command):
    done = subprocess.run(command, stdout=subprocess.DEVNULL)
    if done.returncode not in (0, 5):  # 5: rows of the trace were rejected
        sys.exit(f"cache_table.py: {' '.join(map(str, command))}: ended with exit code {done.returncode}")


def trace_of(name, args):
    if name in LOGS:
        return ROOT / "traces/data" / LOGS[name][0], LOGS[name][1]
    path = args.folder / f"{name}.csv"
    if not path.exists():
        run([args.verbatim, "trace", "generate-shape", "--shape", name, "--to", path])
    return path, []


def points_of(name, args):
    trace, flags = trace_of(name, args)
    kind = "timed" if args.timed else "hits"
    points = []
    for device, fits in DEVICES.items():
        memories = [memory for memory in args.memory.split(",") if fits(float(memory.removesuffix("GB")))]
        if not memories:
            continue
        to = args.folder / f"{kind}-{args.model}-{device}-{name.replace(', ', '-').replace('/', '-')}.jsonl"
        command = [args.verbatim, "sweep", "--trace", trace, "--model", args.model, "--device", device, "--memory",
                   ",".join(memories), "--cache-mode", args.modes, "--to", to, *flags]
        command += ["--rate", args.timed] if args.timed else ["--cache-only"]
        run(command)
        points += [json.loads(line) for line in to.read_text().splitlines()[1:]]
    return points


def print_hits(names, args):
    memories = args.memory.split(",")
    print(f"| {args.model} | memory | " + " | ".join(f"`{mode}`" for mode in args.modes.split(",")) + " |")
    print("|---" * (2 + len(args.modes.split(","))) + "|")
    for name in names:
        points = points_of(name, args)
        sizes = sorted({point["point"]["memory_bytes"] for point in points})
        for memory, size in zip(memories, sizes):
            cells = [point["result"]["hit_rate"]["token"] for point in points if point["point"]["memory_bytes"] == size]
            print(f"| {name} | {memory} | " + " | ".join(f"{100 * cell:.2f} %" for cell in cells) + " |")


def print_times(names, args):
    print("| trace | memory | arrivals | mode | tokens reused | time to first token, mean / p50 / p95, s |")
    print("|---|---|---|---|---|---|")
    for name in names:
        for line in points_of(name, args):
            point, result = line["point"], line["result"]
            times = result["ttft_s"]
            print(f"| {name} | {point['memory_bytes'] / 1e9:g} GB | x {point['rate_scale']:g} "
                  f"| `{point['cache_mode']}`, `{point['evict']}` | {100 * result['hit_rate']['token']:.2f} % "
                  f"| {times['mean']:.3f} / {times['p50']:.3f} / {times['p95']:.3f} |")


def main():
    args = arguments()
    args.folder.mkdir(parents=True, exist_ok=True)
    names = [name.strip().replace(";", ",") for name in args.traces.split(",")]
    (print_times if args.timed else print_hits)(names, args)


if __name__ == "__main__":
    main()
