#!/usr/bin/env python3
"""Copies sources with every mutant in them, each behind its number, and leaves out what does not compile.

mutate.py --source ROOT --out DIR --compile "COMPILER FLAGS..." SOURCE...

Writes DIR/SOURCE for each of the sources (paths from the root) and DIR/mutants.json, the list of the mutants.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys

import mutants

ERROR = re.compile(r"^(.*?):(\d+):(?:\d+:)? (?:fatal )?error: (.*)$", re.M)
ROUNDS = 12  # of leaving out what does not compile


def write_if_changed(path, text):
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            if file.read() == text:
                return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def errors_of(path, text, compile_command):
    """(line, message) of every error in the file. Stops the run when there are errors, but elsewhere."""
    write_if_changed(path, text)
    done = subprocess.run(compile_command + ["-w", "-fsyntax-only", path], capture_output=True, text=True, check=False)
    errors = [(int(line), message) for name, line, message in ERROR.findall(done.stderr)
              if os.path.realpath(name) == os.path.realpath(path)]
    if done.returncode != 0 and not errors:
        raise SystemExit(f"error: {path} does not compile:\n{done.stderr}")
    return errors


def compiling(root, out, source, compile_command):
    """The source and the numbers of its mutants that do not compile."""
    with open(os.path.join(root, source), encoding="utf-8") as file:
        found = mutants.Source(file.read())
    left_out = set()
    path = os.path.join(out, "tried", source)
    for _ in range(ROUNDS):
        text, about = mutants.copy_of(found, 0, left_out)
        errors = errors_of(path, text, compile_command)
        if not errors:
            return found, left_out
        guilty = set().union(*(about.get(line, set()) for line, _ in errors))
        if not guilty - left_out:
            raise SystemExit(f"error: {path}:{errors[0][0]}: {errors[0][1]}: and no mutant is there")
        left_out |= guilty
    raise SystemExit(f"error: {path} does not compile after {ROUNDS} rounds of leaving out what does not")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True, help="root of the repository")
    parser.add_argument("--out", required=True, help="the folder of the copies")
    parser.add_argument("--compile", required=True, help="compiler and flags")
    parser.add_argument("sources", nargs="+", help="sources, from the root")
    arguments = parser.parse_args()
    command = shlex.split(arguments.compile)
    root, out, sources = arguments.source, arguments.out, arguments.sources
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(zip(sources, pool.map(lambda source: compiling(root, out, source, command), sources)))
    listed = []
    first = num_left_out = 0
    for source, (found, left_out) in results:
        text, _ = mutants.copy_of(found, first, left_out)
        write_if_changed(os.path.join(out, source), text)
        for i, mutant in enumerate(found.mutants):
            if i not in left_out:
                listed.append(dict(vars(mutant), number=first + i, source=source))
        first += len(found.mutants)
        num_left_out += len(left_out)
    write_if_changed(os.path.join(out, "mutants.json"), json.dumps(listed, indent=1) + "\n")
    print(f"{len(listed)} mutants; {num_left_out} more do not compile")
    return 0


if __name__ == "__main__":
    sys.exit(main())
