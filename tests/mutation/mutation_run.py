#!/usr/bin/env python3
"""Runs the tests of a program against each mutant that it has, and says which tests catch it.

First every test runs once without a mutant: it must pass, its time is taken, and the mutants that it reaches are noted.
Then each mutant is switched on (VERBATIM_MUTANT=number), and those tests run that reach it, the quick ones first, until
one fails; at last the death tests, whose processes do not tell what they reach. A mutant is killed by a test's own
assertion, by a CHECK, by a crash, or by the clock. It survives when every test passes, and it is unreached when no test
comes to its place.

mutation_run.py --program PROGRAM --mutants FILE --results FILE      all; goes on where a run of the program stopped
mutation_run.py --program PROGRAM --mutants FILE --sample N          N of them; fails when fewer than half are killed
mutation_run.py --mutants FILE --results FILE --report               what the results say
"""

import argparse
import collections
import concurrent.futures
import hashlib
import json
import math
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading

RANDOM_CASES = "seed=20251121 max_success=8 noshrink=1"
DEATH_TEST = "DeathTest"  # each of its cases is a process that ends at an assertion
# Seconds are the processor's: how long a mutant may take does not depend on what else the machine does.
QUICK_SECONDS = 0.3  # of all tests that run in a mutant's first process; the second takes ten times as many
IDLE_SECONDS = 8  # a process that has computed nothing for so long waits for what does not come
LEAST_LIMIT = 3  # that a process may take whatever its tests took without a mutant
TIMES_SLOWER = 10
MEMORY = 2 << 30  # bytes that a mutant may take
RUNNING = re.compile(r"^\[ RUN      \] (\S+)$", re.M)
CHECKED = re.compile(r": CHECK\(.*\) failed")
FAILED = re.compile(r"^\[  FAILED  \] (\S+)", re.M)


def limit_process(seconds):
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run_tests(program, tests, limit, **variables):
    """(exit code, output, seconds); the exit code is -SIGXCPU when it took more than `limit` seconds or stood still."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VERBATIM_")}
    environment.update(variables, RC_PARAMS=RANDOM_CASES)
    command = [program, "--gtest_color=no", "--gtest_fail_fast", "--gtest_filter=" + ":".join(tests)]
    with tempfile.TemporaryFile() as written:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=written,
                                   stderr=subprocess.STDOUT, preexec_fn=lambda: limit_process(math.ceil(limit)))
        stands_still = threading.Event()
        ended = threading.Event()
        watch = threading.Thread(target=end_when_still, args=(process.pid, ended, stands_still))
        watch.start()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        ended.set()
        watch.join()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        written.seek(0)
        code = -signal.SIGXCPU if stands_still.is_set() else process.returncode
        return code, written.read().decode(errors="replace"), usage.ru_utime + usage.ru_stime


def processor_ticks(pid):
    """Of the process and of those that it has waited for."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return sum(map(int, file.read().rpartition(")")[2].split()[11:15]))


def end_when_still(pid, ended, stands_still):
    """Kills the process when it does not compute."""
    before = processor_ticks(pid)
    while not ended.wait(IDLE_SECONDS):
        now = processor_ticks(pid)
        if now - before <= IDLE_SECONDS / 2:  # of a hundred ticks a second: there are threads that look once a second
            stands_still.set()
            os.kill(pid, signal.SIGKILL)
            return
        before = now


def names_of_tests(program, chosen):
    command = [program, "--gtest_list_tests", "--gtest_filter=" + chosen]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    suite = ""
    names = []
    for line in listed.splitlines():
        word = line.split("#")[0].rstrip()
        if line.startswith("  "):
            names.append(suite + word.strip())
        elif word.endswith("."):
            suite = word
    return names


class Test:
    def __init__(self, name, seconds, reached):
        self.name = name
        self.seconds = seconds
        self.reached = reached


def try_test(program, name):
    """The test without a mutant."""
    with tempfile.NamedTemporaryFile() as file:
        code, output, seconds = run_tests(program, [name], 600, VERBATIM_MUTANTS_REACHED=file.name)
        if code != 0:
            raise SystemExit(f"error: {name} fails without a mutant:\n{output[-2000:]}")
        with open(file.name, encoding="utf-8") as written:
            return Test(name, seconds, {int(line) for line in written})


def how_it_ended(code, output):
    """(how, test) of a process in which not every test passed."""
    started = RUNNING.findall(output)
    last = started[-1] if started else "at its start"
    if code == -signal.SIGXCPU:
        return "clock", last
    failed = FAILED.findall(output)
    if code == 1 and failed:
        return "test", failed[0]
    return ("check", last) if CHECKED.search(output) else ("crash", last)


def in_groups(tests):
    """The quickest tests that take QUICK_SECONDS together, those that take ten times as many, and the others."""
    groups = [[], [], []]
    total = 0.0
    for test in sorted(tests, key=lambda test: test.seconds):
        total += test.seconds
        is_first = total <= QUICK_SECONDS or not groups[0]
        groups[0 if is_first else 1 if total <= QUICK_SECONDS * 11 else 2].append(test)
    return [group for group in groups if group]


def try_mutant(program, mutant, tests):
    death_tests = [test for test in tests if DEATH_TEST in test.name]
    reaching = [test for test in tests if mutant["number"] in test.reached and test not in death_tests]
    result = dict(mutant, how="unreached", test="")
    for group in in_groups(reaching) + [death_tests]:
        limit = LEAST_LIMIT + TIMES_SLOWER * sum(test.seconds for test in group)
        number = str(mutant["number"])
        code, output, _ = run_tests(program, [test.name for test in group], limit, VERBATIM_MUTANT=number)
        if reaching:
            result["how"] = "survived"
        if code != 0:
            result["how"], result["test"] = how_it_ended(code, output)
            break
    return result


def read_results(path, version):
    """What a run of the same program has found already."""
    if path is None or not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file if line.endswith("\n")]
    return lines[1:] if lines and lines[0] == {"program": version} else []


def version_of(program):
    with open(program, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def run(arguments, mutants):
    """Tries what has not been tried; all results. Every result is written down at once."""
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        names = names_of_tests(arguments.program, arguments.tests)
        tests = list(pool.map(lambda name: try_test(arguments.program, name), names))
        print(f"{len(tests)} tests pass without a mutant", flush=True)
        version = version_of(arguments.program)
        results = read_results(arguments.results, version)
        tried = {result["number"] for result in results}
        waiting = [mutant for mutant in mutants if mutant["number"] not in tried]
        random.Random(arguments.seed).shuffle(waiting)  # what a run that is stopped has tried is a sample of all
        file = open(arguments.results or os.devnull, "w", encoding="utf-8")
        with file:
            for line in [{"program": version}] + results:
                file.write(json.dumps(line) + "\n")
            for result in pool.map(lambda mutant: try_mutant(arguments.program, mutant, tests), waiting):
                file.write(json.dumps(result) + "\n")
                file.flush()
                results.append(result)
                if len(results) % 100 == 0:
                    print(f"{len(results)} of {len(mutants)} mutants tried", flush=True)
    return results


def print_table(results, column):
    """How the mutants of each kind, or of each source, ended."""
    rows = collections.defaultdict(collections.Counter)
    for result in results:
        for row in (result[column], "all"):
            rows[row][result["how"]] += 1
    print(f"\n| {column} | mutants | killed by a test | by a CHECK | a crash | the clock | unreached | survived |")
    print("|---|---|---|---|---|---|---|---|")
    for row in sorted(rows, key=lambda row: (row == "all", row)):
        counts = rows[row]
        cells = [counts[how] for how in ("test", "check", "crash", "clock", "unreached", "survived")]
        print(f"| {row} | {sum(counts.values())} | " + " | ".join(map(str, cells)) + " |")


def print_report(results, num_mutants):
    print_table(results, "source")
    print_table(results, "kind")
    killers = collections.Counter(result["test"] for result in results if result["test"])
    print("\nThe tests that kill the most: " + ", ".join(f"{test} ({count})" for test, count in killers.most_common(8)))
    for how in ("survived", "unreached"):
        left = [result for result in results if result["how"] == how]
        print(f"\n{how}: {len(left)}")
        for result in sorted(left, key=lambda result: (result["source"], result["line"], result["number"])):
            print(f"    {result['source']}:{result['line']}: {result['kind']}: {result['before']}  ->  "
                  f"{result['after'] or 'nothing'}")
    if len(results) < num_mutants:
        print(f"\n{num_mutants - len(results)} mutants have not been tried")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", help="the test program that has the mutants")
    parser.add_argument("--mutants", required=True, help="mutants.json of mutate.py")
    parser.add_argument("--results", help="where results are kept, one a line")
    parser.add_argument("--report", action="store_true", help="show the results and try nothing")
    parser.add_argument("--sample", type=int, help="so many mutants")
    parser.add_argument("--seed", type=int, default=1, help="of the order in which mutants are tried")
    parser.add_argument("--only", help="a regular expression that SOURCE:LINE of a mutant begins with")
    parser.add_argument("--tests", default="*", help="a filter of gtest: the tests that may run")
    parser.add_argument("--left-by", help="results of another program with these mutants: those that it did not kill")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")
    arguments = parser.parse_args()
    with open(arguments.mutants, encoding="utf-8") as file:
        mutants = json.load(file)
    if arguments.only:
        mutants = [one for one in mutants if re.match(arguments.only, f"{one['source']}:{one['line']}")]
    if arguments.left_by:
        with open(arguments.left_by, encoding="utf-8") as file:
            killed = {result["number"] for result in map(json.loads, list(file)[1:]) if result["test"]}
        mutants = [one for one in mutants if one["number"] not in killed]
    if arguments.report:
        with open(arguments.results, encoding="utf-8") as file:
            print_report([json.loads(line) for line in file][1:], len(mutants))
        return 0
    if arguments.sample:
        mutants = random.Random(arguments.seed).sample(mutants, arguments.sample)
    results = run(arguments, mutants)
    print_report(results, len(mutants))
    num_killed = sum(bool(result["test"]) for result in results)
    print(f"\n{len(results)} mutants, {num_killed} killed")
    return 1 if arguments.sample and num_killed * 2 < len(results) else 0


if __name__ == "__main__":
    sys.exit(main())
