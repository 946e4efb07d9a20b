#!/usr/bin/env python3
"""Looks for mistakes in the program's sources without running them: clang-tidy's checks (.clang-tidy), and cppcheck.

lint.py --source DIR --work DIR [--only REGEX] [--jobs N]

WORK gets a configuration of the build for clang. A finding is an error. What is none is suppressed: in the source by
`NOLINT(check): why`, of cppcheck by a line of suppressed.txt beside this file. The last line counts what was read.
Exit code: 0 nothing was found, 1 something was, or a tool failed; 4 a tool is not here.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import builds

BUILD = builds.Build("lint", builds.CLANG, "-Wshorten-64-to-32")
TIDY, CPPCHECK = "clang-tidy-19", "cppcheck"
FOLDERS = ("audit", "engine", "files", "kernels", "reference", "server", "simulator", "tools", "traces")
# A line of theirs about a source: PATH:LINE:COLUMN: warning: TEXT [CHECK], PATH:LINE: SEVERITY: ID: TEXT
TIDY_FINDING = re.compile(r"^(?P<path>[^:\s]+):\d+:\d+: (?:warning|error): .* \[[\w.,-]+\]$", re.M)
CPPCHECK_FINDING = re.compile(r"^(?P<path>[^:\s]+):\d+: \w+: \w+: .*$", re.M)


def findings(output, pattern, source):
    """The lines about sources of the project, each once."""
    roots = tuple(f"{source}/{folder}/" for folder in FOLDERS)
    paths = ((found.group(), str((source / found.group("path")).resolve())) for found in pattern.finditer(output))
    return {line.replace(f"{source}/", "") for line, path in paths if path.startswith(roots)}


def translation_units(database, only):
    """Files of a compile_commands.json but for those of the tests."""
    files = {os.path.join(entry["directory"], entry["file"]) for entry in json.loads(database)}
    return sorted(file for file in files if "/tests" not in file and re.search(only, file))


def run(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def tidy(source, work, only, jobs):
    """(findings, number of translation units)"""
    code, output = run(["cmake", "-S", source, "-B", work, *builds.options(BUILD)], source)
    if code != 0:
        sys.exit(f"lint: cmake: {output[-2000:]}")
    units = translation_units((work / "compile_commands.json").read_text(encoding="utf-8"), only)

    def look(unit):
        # A unit of several sources lies in the work folder, which may be outside of the tree with the checks.
        code, output = run([TIDY, f"--config-file={source}/.clang-tidy", "-p", work, "--quiet", unit], source)
        found = findings(output, TIDY_FINDING, source)
        return found if found or code == 0 else {f"{unit}: {TIDY} failed: {output.strip()[-300:]}"}

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return set().union(*pool.map(look, units)), len(units)


def cppcheck(source, jobs):
    suppressed = pathlib.Path(__file__).with_name("suppressed.txt")
    command = [CPPCHECK, "--std=c++20", "--language=c++", "-I", ".", "--enable=warning,portability", "--inline-suppr",
               "--quiet", "-j", str(jobs), "--template={file}:{line}: {severity}: {id}: {message}",
               f"--suppressions-list={suppressed}", *FOLDERS]
    code, output = run(command, source)
    found = findings(output, CPPCHECK_FINDING, source)
    return found if found or code == 0 else {f"{CPPCHECK} failed: {output.strip()[-300:]}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True, type=pathlib.Path)
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--only", default="", help="translation units whose paths match; without cppcheck")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    flags = parser.parse_args()
    missing = [tool for tool in (BUILD.compiler, TIDY, CPPCHECK) if shutil.which(tool) is None]
    if missing:
        print(f"lint: not here: {', '.join(missing)}: `apt-get install clang-19 clang-tidy-19 cppcheck` brings them")
        return 4
    source = flags.source.resolve()
    found, num_units = tidy(source, flags.work.resolve(), flags.only, flags.jobs)
    if not flags.only:
        found |= cppcheck(source, flags.jobs)
    for line in sorted(found):
        print(line)
    print(f"{num_units} translation units{'' if flags.only else ' and all folders'} read, {len(found)} findings")
    return 1 if found or num_units == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
