"""The faults of tests/planted/faults/served/clients/ are found by the stock clients' tests, which pass without them.

    planted_clients.py PLANTED_PROGRAM SCRIPTED_SERVER ENVIRONMENT
"""

import os
import pathlib
import subprocess
import sys

from served import SKIPPED, skip

HERE = pathlib.Path(__file__).resolve().parent
FAULTS = HERE.parents[1] / "planted" / "faults" / "served" / "clients"


def run(script, fault):
    env = {key: value for key, value in os.environ.items() if key != "VERBATIM_BUG"}
    if fault:
        env["VERBATIM_BUG"] = fault
    return subprocess.run([sys.executable, "-B", HERE / script, *sys.argv[1:]], env=env, capture_output=True, text=True,
                          check=False, timeout=300)


def main():
    for prefix, script in (("response", "responses_client.py"), ("message", "messages_client.py"),
                           ("scoring", "scoring.py")):
        done = run(script, None)
        if done.returncode == SKIPPED:
            skip(done.stdout)
        assert done.returncode == 0, done.stderr
        for fault in sorted(file.stem for file in FAULTS.glob(f"{prefix}-*.fault")):
            done = run(script, fault)
            assert done.returncode == 1 and "AssertionError" in done.stderr, (fault, done.stdout, done.stderr)
            print(f"{fault}: found", flush=True)


if __name__ == "__main__":
    main()
