#!/usr/bin/env python3
"""Shows that every fault of the engine and its executors is caught, and by which tests.

Runs test programs of which some sources are faulty copies (plant.py) once without a fault (everything must pass), then
once per fault (VERBATIM_BUG=name). A fault is caught by every assertion that fails: a test's, a CHECK of the engine
or of an executor, or the time limit. The programs stop at a CHECK; they are started again without the tests that have
run. The tests that docs/verification.md names for a fault run first. All others run, up to the fault's second
assertion, only where those do not catch it, or where another fault is caught by the same assertion alone. With
--markdown every test runs under every fault, to its end.
Fails when a fault is not caught, or when two faults are caught by one and the same assertion only.

planted_bugs.py --source DIR --program PROGRAM [--program PROGRAM ...] --faults FOLDER [--faults FOLDER ...]
                [--fault NAME ...] [--markdown]
"""

import argparse
import collections
import concurrent.futures
import glob
import os
import re
import subprocess
import sys

RUNS_PER_PROGRAM = 12  # a program that keeps stopping is started again so often
SECONDS_PER_RUN = 120  # a fault may make a run endless
ENOUGH = 2  # assertions: a fault that two catch is not one of those that share their only one
RANDOM_CASES = "seed=20251121 max_success=8 noshrink=1"
PLACE = re.compile(r"(?:\.\./)*([^\s:\"]+\.(?:cc|h)):(\d+):")  # a compiler cache may make paths relative


class Catch:
    """One assertion that failed in one test."""

    def __init__(self, test, place):
        self.test = test
        self.place = place


def read_deeds(source, folders):
    """What each fault of these folders does, by its name."""
    deeds = {}
    for folder in folders:
        pattern = os.path.join(source, "tests/planted/faults", folder, "**/*.fault")
        for path in sorted(glob.glob(pattern, recursive=True)):
            with open(path, encoding="utf-8") as file:
                deeds[os.path.splitext(os.path.basename(path))[0]] = file.readline().strip()
    return deeds


def places_of(text, source):
    """The innermost places in our sources that a failing test names, as file:line."""
    found = []
    for path, line in PLACE.findall(text):
        inside = path.removeprefix(source + "/")
        if os.path.exists(os.path.join(source, inside)) and not os.path.isabs(inside):
            found.append(f"{inside}:{line}")
    # The random worlds report their own assertions through one EXPECT: what they say inside is the assertion.
    worlds = ("engine_model_test.cc", "system_swarm_test.cc")
    inner = [place for place in found if not any(world in place for world in worlds)]
    return inner or found


def split_by_test(output):
    """(test, text, passed) of every test that was run, in order; the last one may not have ended."""
    parts = re.split(r"^\[ RUN      \] (\S+)$", output, flags=re.M)
    for test, text in zip(parts[1::2], parts[2::2]):
        if re.search(r"^\[  SKIPPED \] ", text, re.M):
            continue  # one before it failed
        yield test, text, re.search(r"^\[       OK \] ", text, re.M) is not None


def documented_tests(source):
    """The tests that docs/verification.md names for each fault."""
    with open(os.path.join(source, "docs/verification.md"), encoding="utf-8") as file:
        rows = re.findall(r"^\| `(\w+)` \|.*\|([^|]*)\|$", file.read(), re.M)
    return {fault: re.findall(r"`([^`]+)`", tests) for fault, tests in rows}


def run_once(program, fault, chosen, excluded, fail_fast):
    """`chosen`: the tests that run; none: all."""
    environment = dict(os.environ, RC_PARAMS=RANDOM_CASES)
    environment.pop("VERBATIM_BUG", None)
    environment.pop("VERBATIM_SEED", None)
    if fault:
        environment["VERBATIM_BUG"] = fault
    tests = ":".join(chosen) + "-*DeathTest*" + "".join(":" + test for test in excluded)
    command = [program, "--gtest_color=no", f"--gtest_filter={tests}"] + ["--gtest_fail_fast"] * fail_fast
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=SECONDS_PER_RUN, check=False)
        return done.stdout.decode(errors="replace"), done.returncode
    except subprocess.TimeoutExpired as late:
        return (late.stdout or b"").decode(errors="replace"), None


def num_places(catches):
    return len({catch.place for catch in catches})


def catches_of(program, fault, source, enough, chosen):
    """The assertions of the program that fail under the fault, and how many tests were run."""
    catches = []
    started = []
    for _ in range(RUNS_PER_PROGRAM):
        output, code = run_once(program, fault, chosen, started, fail_fast=enough < float("inf"))
        for test, text, passed in split_by_test(output):
            started.append(test)
            if passed:
                continue
            places = places_of(text, source) or (["no end"] if code is None else [f"exit code {code}"])
            catches += [Catch(test, place) for place in dict.fromkeys(places)]
        ended = code == 0 or (code == 1 and enough == float("inf"))
        if ended or num_places(catches) >= enough:
            break
    return catches, len(started)


def run_fault(arguments, fault, chosen=()):
    enough = float("inf") if arguments.markdown else ENOUGH
    catches = []
    num_tests = 0
    for program in arguments.program:
        found, started = catches_of(program, fault, arguments.source, enough, chosen)
        catches += found
        num_tests += started
        if num_places(catches) >= enough:
            break
    return catches, num_tests


def print_table(results, deeds, markdown):
    """The most telling tests first: those whose own assertion fails, and that catch the fewest other faults."""
    tests_of = {fault: list(dict.fromkeys(catch.test for catch in catches)) for fault, catches in results.items()}
    num_faults = collections.Counter(test for tests in tests_of.values() for test in tests)
    for fault, catches in results.items():
        own = {catch.test for catch in catches if re.match(r"tests/(?!support/)", catch.place)}
        tests = sorted(tests_of[fault], key=lambda test: (test not in own, num_faults[test]))
        places = list(dict.fromkeys(catch.place for catch in catches))
        if markdown:
            shown = ", ".join(f"`{test}`" for test in tests[:2]) or "nothing"
            more = f" and {len(tests) - 2} more" if len(tests) > 2 else ""
            print(f"| `{fault}` | {deeds[fault]} | {shown}{more} |")
        else:
            print(f"{fault}: {len(tests)} tests, {len(places)} assertions")
            for test in tests[:4]:
                shown = list(dict.fromkeys(catch.place for catch in catches if catch.test == test))
                print(f"    {test}  {' '.join(shown[:3])}")


def caught_alike(results):
    """The faults by the assertion that alone catches them, where it is that of several."""
    alone = {}
    for fault, catches in results.items():
        places = {catch.place for catch in catches}
        if len(places) == 1:
            alone.setdefault(places.pop(), []).append(fault)
    return {place: faults for place, faults in alone.items() if len(faults) > 1}


def problems_of(results):
    problems = [f"{fault}: no test catches it" for fault, catches in results.items() if not catches]
    for place, faults in caught_alike(results).items():
        problems.append(f"{', '.join(faults)}: caught by {place} only, all of them")
    return problems


def run_faults(arguments, faults, documented):
    """The catches of each fault, one fault per core at a time."""
    def catch(fault, chosen=()):
        return run_fault(arguments, fault, chosen)[0]

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        if arguments.markdown:
            return dict(zip(faults, pool.map(catch, faults)))
        known = [fault for fault in faults if documented.get(fault)]
        results = dict(zip(known, pool.map(lambda fault: catch(fault, documented[fault]), known)))
        tried = set()  # with every test
        while True:
            undecided = {fault for alike in caught_alike(results).values() for fault in alike}
            undecided = sorted((undecided | {fault for fault in faults if not results.get(fault)}) - tried)
            if not undecided:
                break
            for fault in undecided:
                print(f"{fault}: every test runs, those of docs/verification.md do not tell")
            results |= dict(zip(undecided, pool.map(catch, undecided)))
            tried |= set(undecided)
    return {fault: results[fault] for fault in faults}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True, help="root of the repository")
    parser.add_argument("--program", action="append", required=True, help="a test program; may be given again")
    parser.add_argument("--faults", action="append", required=True,
                        help="folder in tests/planted/faults of the program's faults; may be given again")
    parser.add_argument("--fault", action="append", help="this fault only; may be given again")
    parser.add_argument("--markdown", action="store_true", help="the table as docs/verification.md has it")
    arguments = parser.parse_args()
    arguments.source = os.path.realpath(arguments.source)

    catches, num_tests = run_fault(arguments, None)
    print(f"without a fault: {num_tests} tests, {len(catches)} failed")
    if catches or num_tests == 0:
        print("\n".join(f"    {catch.test}  {catch.place}" for catch in catches))
        return 1
    deeds = read_deeds(arguments.source, arguments.faults)
    faults = arguments.fault or list(deeds)
    documented = documented_tests(arguments.source)
    results = run_faults(arguments, faults, documented)
    print_table(results, deeds, arguments.markdown)
    problems = problems_of(results)
    unlisted = [fault for fault in deeds if fault not in documented]
    problems += [f"{fault}: docs/verification.md does not list it (--markdown prints the rows)" for fault in unlisted]
    for problem in problems:
        print(f"error: {problem}")
    print(f"{len(faults)} planted bugs, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
