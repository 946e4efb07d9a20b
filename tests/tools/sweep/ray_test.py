#!/usr/bin/env python3
"""A sweep whose shards are Ray tasks has the bytes of the sweep without Ray.

    ray_test.py VERBATIM SOURCE_DIR SCRATCH_DIR ENVIRONMENT

Installs `ray` into ENVIRONMENT (tests/environment.py). Exit code 77: it cannot be had, and nothing was tested.
"""

import pathlib
import subprocess
import sys
import tempfile


def main():
    verbatim, source, scratch, environment = sys.argv[1], *map(pathlib.Path, sys.argv[2:])
    have = subprocess.run([sys.executable, "-B", source / "tests/environment.py", environment, "ray"], check=False)
    if have.returncode != 0:
        return have.returncode
    python = environment / "bin" / "python"
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
