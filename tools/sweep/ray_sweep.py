#!/usr/bin/env python3
"""Runs the shards of one `verbatim sweep` as Ray tasks, and merges what they leave.

    python3 tools/sweep/ray_sweep.py --verbatim build/release/verbatim --shards 8 --to points.jsonl -- \\
        --trace TRACE --memory 20GB,40GB,60GB --cache-mode exact,block-aligned

What follows `--` are flags of `verbatim sweep`, but --to, --shard and --threads, which are this script's own. The
program, the trace and the folder of --to must be seen by every node under the same names. Each shard leaves
TO.shard-I-of-N, which stays: whoever is interrupted runs the same command again, and points that are there are kept.
The merged file has the bytes of the same sweep without Ray.

Wants the package `ray` (https://pypi.org/project/ray/). Exit codes are those of `verbatim sweep`; 2: a bad flag.
"""

import argparse
import subprocess
import sys

ROWS_REJECTED = 5  # the exit code of a sweep with points that rejected rows: its results are whole


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbatim", required=True, metavar="FILE", help="the program")
    parser.add_argument("--to", required=True, metavar="FILE", help="where the merged results go")
    parser.add_argument("--shards", type=int, required=True, metavar="N", help="tasks that share the points")
    parser.add_argument("--address", metavar="HOST", help="of a Ray cluster; without it one is started here")
    parser.add_argument("sweep", nargs="+", metavar="FLAG", help="flags of `verbatim sweep`")
    options = parser.parse_args()
    if options.shards < 1:
        parser.error(f"--shards {options.shards}: wanted 1 or more")
    for flag in options.sweep:
        if flag.split("=")[0] in ("--to", "--shard", "--threads"):
            parser.error(f"{flag.split('=')[0]} after --: shards say that themselves")
    return options


def shard_path(options, number):
    return f"{options.to}.shard-{number}-of-{options.shards}"


def run_shard(command):
    """One task: the exit code, and what was said on stderr."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return done.returncode, done.stderr


def main():
    options = arguments()
    try:
        import ray
    except ImportError:
        sys.exit("ray_sweep: no package `ray`: python3 -m pip install ray")
    ray.init(address=options.address, include_dashboard=False, log_to_driver=False, logging_level="error")
    # A node that is lost loses no points: the shard goes on where it was.
    task = ray.remote(num_cpus=1, max_retries=3)(run_shard)
    shards = []
    for number in range(1, options.shards + 1):
        command = [options.verbatim, "sweep", *options.sweep, "--threads", "1"]
        command += ["--shard", f"{number}/{options.shards}", "--to", shard_path(options, number)]
        shards.append(task.remote(command))
    failed, rejected = 0, False
    for number, shard in enumerate(shards, 1):
        code, words = ray.get(shard)
        if code != 0:
            print(f"ray_sweep: shard {number}/{options.shards} ends with {code}:\n{words}", end="", file=sys.stderr)
        rejected = rejected or code == ROWS_REJECTED
        failed = failed or (0 if code == ROWS_REJECTED else code)
    if failed:
        return failed
    parts = [shard_path(options, number) for number in range(1, options.shards + 1)]
    merged = subprocess.run([options.verbatim, "sweep", "merge", *parts, "--to", options.to]).returncode
    return merged or (ROWS_REJECTED if rejected else 0)


if __name__ == "__main__":
    sys.exit(main())
