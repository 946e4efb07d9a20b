#!/usr/bin/env python3
"""A sweep whose shards are Ray tasks has the bytes of the sweep without Ray.

    ray_test.py VERBATIM SOURCE_DIR SCRATCH_DIR

Makes an environment with `ray` from PyPI in SCRATCH_DIR, once. Exit code 77: PyPI cannot be reached, and nothing was
tested.
"""

import pathlib
import subprocess
import sys
import tempfile
import venv

SKIPPED = 77
RAY = "ray>=2.9,<3"


def environment(folder):
    """The environment's python, or why there is none."""
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        venv.create(folder, with_pip=True, clear=True)
        install = [python, "-m", "pip", "install", "--quiet", "--retries", "1", "--timeout", "10", RAY]
        done = subprocess.run(install, capture_output=True, text=True)
        if done.returncode != 0:
            return None, done.stderr.strip().splitlines()[-1:]
        ready.touch()
    return python, None


def main():
    verbatim, source, scratch = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    try:
        python, why = environment(scratch / "ray_env")
    except (OSError, subprocess.CalledProcessError) as failure:  # no ensurepip, no room
        python, why = None, failure
    if python is None:
        print(f"skipped: {RAY} cannot be had from PyPI: {why}")
        return SKIPPED
    flags = ["--trace", str(source / "traces/data/mooncake_conversation_trace.jsonl.gz"), "--limit", "150"]
    flags += ["--memory", "20GB,60GB", "--cache-mode", "exact,block-aligned"]
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        folder = pathlib.Path(folder)
        whole, merged, none = folder / "whole", folder / "merged", folder / "none"
        subprocess.run([verbatim, "sweep", *flags, "--to", whole], check=True)
        driver = [python, source / "tools/sweep/ray_sweep.py", "--verbatim", verbatim, "--shards", "3"]
        subprocess.run([*driver, "--to", merged, "--", *flags], check=True, timeout=300)
        assert whole.read_bytes() == merged.read_bytes(), "the merged file is another one"
        assert whole.read_bytes().count(b"\n") == 1 + 4, "a header and four points"
        # A shard that fails is said, and nothing is merged.
        wrong = subprocess.run([*driver, "--to", none, "--", *flags, "--model", "no-such-model"],
                               capture_output=True, text=True, timeout=300)
        assert wrong.returncode == 3, wrong
        assert "shard 1/3 ends with" in wrong.stderr and "no-such-model" in wrong.stderr, wrong.stderr
        assert not none.exists()
        # Flags that are the driver's own are refused.
        own = subprocess.run([*driver, "--to", none, "--", *flags, "--shard", "1/2"], capture_output=True, text=True)
        assert own.returncode == 2 and "--shard after --" in own.stderr, own.stderr
    print("a sweep over Ray has the same bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
