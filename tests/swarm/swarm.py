#!/usr/bin/env python3
"""Runs the random tests with fresh seeds, one program per core, until the minutes are over.

swarm.py --source DIR --build DIR --minutes M [--seed N] [--only REGEX] [--logs DIR]

Candidates are the tests of source files that use tests/support/random_cases.h or RapidCheck; the build's ctest says how
each is started. One whose first run names neither its cases nor RapidCheck's seed is not random, and does not run
again. The tests take turns, in an order drawn from the seed, and run number i has the seed
N + i * 1000003. A failure's output is kept in LOGS, with the command that repeats it, and the test goes on with other
seeds until it has failed three times. The last lines count runs and cases of each suite. Exit code: 0 nothing failed,
1 something did, 2 there was nothing to run.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import random
import re
import subprocess
import sys
import threading
import time

SECONDS_PER_RUN = 900  # a run that takes longer has failed
MOST_FAILURES = 3  # of a test, which is then left out
SEED_STEP = 1000003  # between runs: a run's cases have seeds from its own on
RANDOM_SOURCE = re.compile(r'#include [<"](?:tests/support/random_cases\.h|rapidcheck)')
TEST = re.compile(r"^(?:TEST|TEST_F|TEST_P|RC_GTEST_PROP|RC_GTEST_FIXTURE_PROP)\(\s*(\w+),\s*(\w+)", re.M)


def random_tests(source):
    """Suite.Test of every test in a source file with random cases."""
    names = set()
    for folder, _, files in os.walk(os.path.join(source, "tests")):
        for name in files:
            if not name.endswith("_test.cc"):
                continue
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                text = file.read()
            if RANDOM_SOURCE.search(text):
                names |= {".".join(found) for found in TEST.findall(text)}
    return names


def base_name(test):
    """Suite.Test of a ctest name: Instance/Suite.Test/parameter without the instance and the parameter."""
    parts = test.split("/")
    return next((part for part in parts if "." in part), test)


def commands_of(build, names, only):
    """{ctest's name: (command, folder)} of the built tests that are random."""
    listed = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], capture_output=True, text=True,
                            check=True).stdout
    commands = {}
    for test in json.loads(listed)["tests"]:
        if "command" not in test or base_name(test["name"]) not in names or not re.search(only, test["name"]):
            continue
        properties = {one["name"]: one["value"] for one in test.get("properties", [])}
        commands[test["name"]] = (test["command"], properties.get("WORKING_DIRECTORY", build))
    return commands


def is_random(output):
    return re.search(r"^cases \d+ \.\. \d+$|^Using configuration: seed=", output, re.M) is not None


def num_cases(output):
    """What the random tests of a program's output say of their cases."""
    ranges = re.findall(r"^cases (\d+) \.\. (\d+)$", output, re.M)
    return sum(int(last) - int(first) + 1 for first, last in ranges) + sum(
        int(passed) for passed in re.findall(r"^OK, passed (\d+) tests", output, re.M))


class Swarm:
    """Counts of the runs so far, under a lock."""

    def __init__(self, commands, seed, minutes, logs):
        self.commands = commands
        self.order = sorted(commands)
        random.Random(seed).shuffle(self.order)
        self.seed = seed
        self.end = time.monotonic() + 60 * minutes
        self.logs = logs
        self.next = 0
        self.lock = threading.Lock()
        self.runs = collections.Counter()
        self.cases = collections.Counter()
        self.failures = collections.Counter()
        self.fixed = set()  # tests without random cases

    def take(self):
        """The next (test, seed); none when the time is over or every test has failed too often."""
        with self.lock:
            for _ in self.order:
                index = self.next
                self.next += 1
                test = self.order[index % len(self.order)]
                if self.failures[test] < MOST_FAILURES and test not in self.fixed:
                    return None if time.monotonic() >= self.end else (test, self.seed + index * SEED_STEP)
        return None

    def run(self, test, seed):
        command, folder = self.commands[test]
        parameters = f"seed={seed} max_success=100"
        environment = dict(os.environ, RC_PARAMS=parameters)
        environment.pop("VERBATIM_SEED", None)
        try:
            done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=SECONDS_PER_RUN, check=False)
            output, failed = done.stdout.decode(errors="replace"), done.returncode != 0
        except subprocess.TimeoutExpired as late:
            output, failed = (late.stdout or b"").decode(errors="replace"), True
        with self.lock:
            self.runs[test] += 1
            self.cases[test] += num_cases(output)
            if not failed and not is_random(output):
                self.fixed.add(test)
            if failed:
                self.failures[test] += 1
                self.report(test, seed, output, f'RC_PARAMS="{parameters}" ' + " ".join(command))

    def report(self, test, seed, output, repeat):
        os.makedirs(self.logs, exist_ok=True)
        path = os.path.join(self.logs, re.sub(r"[^\w.]", "_", test) + f"-{seed}.log")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"{repeat}\n{output}")
        print(f"failed: {test} with seed {seed}: {path}\n    {repeat}", flush=True)

    def work(self):
        while (taken := self.take()) is not None:
            self.run(*taken)

    def summary(self):
        suites = collections.defaultdict(lambda: [0, 0, 0])
        for test in self.order:
            if test in self.fixed:
                continue
            counts = suites[base_name(test).split(".")[0]]
            for i, counter in enumerate((self.runs, self.cases, self.failures)):
                counts[i] += counter[test]
        lines = [f"{name}: {runs} runs, {cases} cases, {failed} failed" for name, (runs, cases, failed)
                 in sorted(suites.items())]
        tests = [test for test in self.order if test not in self.fixed]
        reached = sum(1 for test in tests if self.runs[test])
        lines.append(f"swarm: {reached} of {len(tests)} random tests ran, {sum(self.runs.values())} runs, "
                     f"{sum(self.cases.values())} cases, {sum(self.failures.values())} failed, from seed {self.seed}")
        return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True, help="root of the repository")
    parser.add_argument("--build", required=True, help="folder of the built tests")
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--seed", type=int, default=None, help="of the first run; without it the clock's")
    parser.add_argument("--only", default="", help="tests whose name this regular expression finds")
    parser.add_argument("--logs", default=None, help="folder of the failures' outputs; BUILD/swarm without it")
    arguments = parser.parse_args()
    if arguments.minutes <= 0:
        parser.error("--minutes: must be more than 0")
    commands = commands_of(arguments.build, random_tests(arguments.source), arguments.only)
    if not commands:
        print("swarm: error: no random test is built, or --only finds none", file=sys.stderr)
        return 2
    seed = arguments.seed if arguments.seed is not None else time.time_ns() // 1000
    swarm = Swarm(commands, seed, arguments.minutes, arguments.logs or os.path.join(arguments.build, "swarm"))
    print(f"swarm: {len(commands)} random tests, {arguments.minutes:g} minutes, from seed {seed}", flush=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for worker in [pool.submit(swarm.work) for _ in range(os.cpu_count())]:
            worker.result()
    print(swarm.summary())
    return 1 if swarm.failures else 0


if __name__ == "__main__":
    sys.exit(main())
