#!/usr/bin/env python3
"""Counts the assertions of a folder by function: how many there are, and which mutators have none.

A mutator is a member function that is not const, defined in a .cc of the folder and no part of verify(). Constructors
with a body are mutators, too. What the compiler checks is not counted, nor is engine/base, which serves every folder.

count_assertions.py [--source DIR] [--folder DIR] [--list] [--least N]
    --folder is a folder of the repository, engine by default
    --list names the mutators without an assertion; with fewer than N of them per mutator the exit code is 1
"""

import argparse
import glob
import os
import re

HEAD = re.compile(r"^(?!namespace|class|struct|#|//|template|\}|\s)[^;({]*?\b(\w+(?:<\w+>)?)::(~?\w+)\(.*", re.S)
CHECK = re.compile(r"\bCHECK(?:_[A-Z]{2})?\(")
LEFT_OUT = re.compile(r"/base/|_verify\.cc$")


def functions_of(text):
    """(class, name, is const, body) of every member function that a layout with closing braces in column 0 shows, but
    for constructors that only initialize."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        if not HEAD.match(lines[at]):
            at += 1
            continue
        first = at
        depth = lines[at].count("{") - lines[at].count("}")
        # Braces that open and close before the body are those of what a constructor initializes.
        while depth > 0 or not lines[at].endswith("}"):
            at += 1
            if at == len(lines) or (depth == 0 and lines[at].endswith(";")):
                break
            depth += lines[at].count("{") - lines[at].count("}")
        whole = "\n".join(lines[first:at + 1])
        at += 1
        if "{" not in whole:
            continue
        signature = whole[:whole.index("{")]
        owner, name = HEAD.match(lines[first]).groups()
        if owner.partition("<")[0] == name and whole.endswith("{}"):
            continue
        yield owner, name, bool(re.search(r"\)\s*const\b", signature)), whole[len(signature):]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default=".", help="the repository's root")
    parser.add_argument("--folder", default="engine", help="a folder of the repository")
    parser.add_argument("--list", action="store_true", help="name the mutators without an assertion")
    parser.add_argument("--least", type=float, default=0, help="assertions per mutator, on average")
    arguments = parser.parse_args()
    num_mutators = num_checks = 0
    without = []
    for path in sorted(glob.glob(os.path.join(arguments.source, arguments.folder, "**/*.cc"), recursive=True)):
        source = os.path.relpath(path, arguments.source)
        if LEFT_OUT.search(source):
            continue
        with open(path, encoding="utf-8") as file:
            text = file.read()
        mutators = [one for one in functions_of(text) if not one[2] and not one[1].startswith(("verify", "~"))]
        checks = [len(CHECK.findall(body)) for _, _, _, body in mutators]
        num_mutators += len(mutators)
        num_checks += sum(checks)
        if mutators:
            print(f"{source}: {sum(checks)} in {len(mutators)} mutators")
        without += [f"{source}: {owner}::{name}" for (owner, name, _, _), count in zip(mutators, checks) if count == 0]
    print(f"all: {num_checks} in {num_mutators} mutators, {num_checks / max(num_mutators, 1):.2f} each; "
          f"{len(without)} have none")
    for one in without if arguments.list else []:
        print(f"    {one}")
    if num_mutators == 0 or num_checks < arguments.least * num_mutators:
        raise SystemExit(f"fewer than {arguments.least} assertions per mutator")


if __name__ == "__main__":
    main()
