"""results.py counts|failed|not-tested FILE...: what ctest's JUnit files say, for tools/check.

    counts      one line: passed, failed, skipped
    failed      the tests that failed, one a line
    not-tested  `not tested: NAMES: REASON`, one line for each reason: what a skipped test printed after `skipped: `, or
                a gtest's message

A test whose program could not be started has failed.
"""

import re
import sys
import xml.etree.ElementTree

MOST_NAMES = 6  # beyond, the suites are named
# What brings something, where a reason does not say it itself.
BROUGHT_BY = [(re.compile(r"CUDA|GPU"), "`tools/gpu-check` on a machine with a GPU runs these")]


def reason_of(said):
    plain = [line[len("skipped: "):] for line in said.splitlines() if line.startswith("skipped: ")]
    if plain:
        return " ".join(" ".join(plain).split())
    found = re.search(r"^\S+:\d+: Skipped\n(.*?)^\[  SKIPPED \]", said, re.DOTALL | re.MULTILINE)
    return " ".join(found.group(1).split()) if found and found.group(1).strip() else "the test gives no reason"


def read(path):
    """(passed, failed, skipped): two counts' names, and {name: reason}."""
    passed, failed, skipped = [], [], {}
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        name, status = case.get("name"), case.get("status")
        left_out = case.find("skipped")
        if status == "run":
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
