"""results.py counts|failed|not-tested FILE...: what ctest's JUnit files say, for tools/check.

    counts      one line: passed, failed, skipped
    failed      the tests that failed, one a line
    not-tested  `not tested: NAMES: REASON`, one line for each reason: what a skipped test printed after `skipped: `, or
                a gtest's message

A test whose program could not be started has failed. A shard of a gtest program counts as the cases that it printed.
"""

import re
import sys
import xml.etree.ElementTree

MOST_NAMES = 6  # beyond, the suites are named
SHARD = re.compile(r"tests_\w+/\d+")  # tests/CMakeLists.txt names them
# What brings something, where a reason does not say it itself.
BROUGHT_BY = [(re.compile(r"CUDA|GPU"), "`tools/gpu-check` on a machine with a GPU runs these")]


def reason_of(said):
    plain = [line[len("skipped: "):] for line in said.splitlines() if line.startswith("skipped: ")]
    if plain:
        return " ".join(" ".join(plain).split())
    found = re.search(r"^\S+:\d+: Skipped\n(.*?)^\[  SKIPPED \]", said, re.DOTALL | re.MULTILINE)
    return " ".join(found.group(1).split()) if found and found.group(1).strip() else "the test gives no reason"


def cases_of(said):
    """What a gtest program printed of its cases, in order: (name, OK, SKIPPED or FAILED, the end's name with its
    parameter, the text). A case that has no end is that in which the program ended."""
    parts = re.split(r"\[ RUN      \] (\S+)\n", said)
    for name, text in zip(parts[1::2], parts[2::2]):
        end = re.search(rf"\[ +(OK|SKIPPED|FAILED) +\] ({re.escape(name)}\b.*) \(\d+ ms\)$", text, re.MULTILINE)
        yield name, *(end.groups() if end else ("FAILED", f"{name}, and the program ended in it")), text


def read_shard(shard, has_passed, said, passed, failed, skipped):
    """Adds the cases of a shard; the shard's own name, if they do not say why it failed or some were not run."""
    cases = list(cases_of(said))
    passed += [name for name, result, _, _ in cases if result == "OK"]
    failed += [ended for _, result, ended, _ in cases if result == "FAILED"]
    skipped |= {name: reason_of(text) for name, result, _, text in cases if result == "SKIPPED"}
    announced = re.search(r"^\[==========\] Running (\d+) test", said, re.MULTILINE)
    if announced is None or int(announced[1]) != len(cases):
        failed.append(f"{shard}: {len(cases)} of {announced[1] if announced else 'its'} cases were run")
    elif not has_passed and all(result != "FAILED" for _, result, _, _ in cases):
        failed.append(shard)


def read(path):
    """(passed, failed, skipped): two counts' names, and {name: reason}."""
    passed, failed, skipped = [], [], {}
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        name, status = case.get("name"), case.get("status")
        left_out = case.find("skipped")
        if SHARD.fullmatch(name):
            read_shard(name, status == "run", case.findtext("system-out") or "", passed, failed, skipped)
        elif status == "run":
            passed.append(name)
        elif status == "disabled":
            skipped[name] = "the build disables it"
        elif left_out is not None and left_out.get("message", "").startswith("SKIP_"):
            skipped[name] = reason_of(case.findtext("system-out") or "")
        else:
            failed.append(name)
    return passed, failed, skipped


def names_in_short(names):
    if len(names) <= MOST_NAMES:
        return ", ".join(names)
    suites = {}
    for name in names:
        suite = name.split(".")[0] + ".*" if "." in name else name
        suites[suite] = suites.get(suite, 0) + 1
    return ", ".join(f"{suite} ({count})" for suite, count in suites.items())


def main():
    what, files = sys.argv[1], [read(path) for path in sys.argv[2:]]
    if what == "counts":
        print(*(sum(len(group) for group in groups) for groups in zip(*files)))
    elif what == "failed":
        for _, failed, _ in files:
            print("".join(name + "\n" for name in failed), end="")
    else:
        reasons = {}
        for _, _, skipped in files:
            for name, reason in skipped.items():
                reasons.setdefault(reason, {})[name] = True
        for reason, names in reasons.items():
            brought = [by for pattern, by in BROUGHT_BY if pattern.search(reason) and "brings it" not in reason]
            print(": ".join(["not tested", names_in_short(list(names)), reason, *brought]))


if __name__ == "__main__":
    main()
