#!/usr/bin/env python3
"""Copies sources with the faults of tests/planted/faults/ in them, each behind a separate switch.

A fault is a file: what the fault does, an empty line, then places:

    room is made by preempting the oldest

    @@ engine/scheduler/scheduler.cc
    -        Sequence& victim = *running_.back();
    +        Sequence& victim = FAULT ? *running_.front() : *running_.back();

A place is some whole lines of a source: those that stay begin with a space, those that go with -, those of the faulty
copy with +. FAULT is true while the fault is switched on (tests/planted/fault.h). The lines must stand in the source
exactly once, whatever their indentation, and no two faults may change one line.

plant.py --source ROOT --out DIR FOLDER...    plants every fault below the folders: the copies lie below DIR, with
                                              fault_names.cc, the faults' names
plant.py --source ROOT --list FOLDER...       names the sources that these faults change
"""

import argparse
import difflib
import glob
import os
import re
import sys

SWITCH = re.compile(r"\bFAULT\b")


class Misfit(Exception):
    """A fault file that cannot be read, or that does not fit its source. Says where."""


class Place:
    """Lines of one source that a fault changes: (kind, text) with kind ' ', '-' or '+'."""

    def __init__(self, source, where):
        self.source = source
        self.where = where
        self.lines = []

    def standing(self):
        return [text for kind, text in self.lines if kind != "+"]


class Fault:
    def __init__(self, name, deed, places):
        self.name = name
        self.deed = deed
        self.places = places


class Change:
    """Lines [begin, end) of a source that become `lines`."""

    def __init__(self, begin, end, lines, where):
        self.begin = begin
        self.end = end
        self.lines = lines
        self.where = where


def read_fault(path, shown):
    """The fault of a file; `shown` is how messages name the file."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    name = os.path.splitext(os.path.basename(path))[0]
    if len(lines) < 3 or not lines[0].strip() or lines[1]:
        raise Misfit(f"{shown}:1: wanted one line that says what the fault does, then an empty line")
    places = []
    for number, line in enumerate(lines[2:], 3):
        if line.startswith("@@ "):
            places.append(Place(line[3:].strip(), f"{shown}:{number}"))
        elif line and line[0] in " -+" and places:
            places[-1].lines.append((line[0], line[1:]))
        elif line:
            raise Misfit(f"{shown}:{number}: wanted `@@ SOURCE`, or a line that begins with a space, - or +: {line}")
    for place in places:
        check_place(place)
    if not any(SWITCH.search(text) for place in places for kind, text in place.lines if kind == "+"):
        raise Misfit(f"{shown}: no + line has the word FAULT: the fault could not be switched off")
    return Fault(name, lines[0].strip(), places)


def check_place(place):
    if not any(text.strip() for text in place.standing()):
        raise Misfit(f"{place.where}: no line of {place.source} to look for")
    if all(kind == " " for kind, _ in place.lines):
        raise Misfit(f"{place.where}: nothing changes in {place.source}")


def places_of(wanted, lines):
    """Every line number (from 0) at which all wanted lines stand, whatever their indentation."""
    wanted = [text.strip() for text in wanted]
    stripped = [text.strip() for text in lines]
    return [at for at in range(len(lines) - len(wanted) + 1) if stripped[at:at + len(wanted)] == wanted]


def nearest(wanted, lines):
    """What the source has instead: the first wanted line that is not there, and the line most like it."""
    stripped = [text.strip() for text in lines]
    missing = next((text.strip() for text in wanted if text.strip() not in stripped), None)
    if missing is None:
        return "its lines stand there, but not one after the other"
    like = difflib.get_close_matches(missing, stripped, 1, 0.5)
    if not like:
        return f"no line is like `{missing}`"
    return f"no line is `{missing}`; line {stripped.index(like[0]) + 1} is `{like[0]}`"


def changes_of(fault, number, source, lines):
    """The changes that a fault makes in a source, its switch written out."""
    changes = []
    for place in fault.places:
        if place.source != source:
            continue
        found = places_of(place.standing(), lines)
        if not found:
            raise Misfit(f"{place.where}: does not fit {source}: {nearest(place.standing(), lines)}")
        if len(found) > 1:
            shown = ", ".join(str(at + 1) for at in found)
            raise Misfit(f"{place.where}: fits {source} at lines {shown}: add lines around it")
        at = found[0]
        open_change = None
        for kind, text in place.lines:
            if kind == " ":
                open_change = None
                at += 1
                continue
            if open_change is None:
                open_change = Change(at, at, [], place.where)
                changes.append(open_change)
            if kind == "-":
                at += 1
                open_change.end = at
            else:
                open_change.lines.append(SWITCH.sub(f"::verbatim::planted::is_on({number})", text))
    return changes


def faulty_copy(source, lines, changes, path):
    """The text of the copy. Its lines have the numbers of the source's."""
    changes = sorted(changes, key=lambda change: (change.begin, change.end))
    for one, other in zip(changes, changes[1:]):
        if other.begin < one.end or other.begin == one.begin:
            raise Misfit(f"{other.where}: changes what {one.where} changes, at line {other.begin + 1} of {source}")
    out = ['#include "tests/planted/fault.h"', f'#line 1 "{path}"']
    at = 0
    for change in changes:
        out += lines[at:change.begin]
        for text in change.lines:
            out += [f'#line {change.begin + 1} "{path}"', text]
        out.append(f'#line {change.end + 1} "{path}"')
        at = change.end
    return "\n".join(out + lines[at:]) + "\n"


def names_file(faults):
    """fault_names.cc: what each number means, for tests/planted/fault.cc."""
    rows = "".join(f'    {{"{fault.name}", "{fault.places[0].source}"}},\n' for fault in faults)
    return ('#include "tests/planted/fault.h"\n\nnamespace verbatim::planted {\n\n'
            f"static constexpr Fault kAll[] = {{\n{rows}}};\n"
            "constinit const std::span<const Fault> kFaults = kAll;\n\n}  // namespace verbatim::planted\n")


def write_if_changed(path, text):
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            if file.read() == text:
                return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def read_faults(root, folders):
    paths = [path for folder in folders for path in glob.glob(folder + "/**/*.fault", recursive=True)]
    faults = [read_fault(path, os.path.relpath(path, root)) for path in sorted(paths)]
    names = [fault.name for fault in faults]
    for name in names:
        if names.count(name) > 1:
            raise Misfit(f"two faults are called {name}")
    return faults


def sources_of(faults):
    return sorted({place.source for fault in faults for place in fault.places})


def plant(root, out, faults):
    for source in sources_of(faults):
        path = os.path.join(root, source)
        try:
            with open(path, encoding="utf-8") as file:
                lines = file.read().splitlines()
        except OSError:
            wheres = [place.where for fault in faults for place in fault.places if place.source == source]
            raise Misfit(f"{wheres[0]}: there is no {source}") from None
        changes = []
        for number, fault in enumerate(faults):
            changes += changes_of(fault, number, source, lines)
        write_if_changed(os.path.join(out, source), faulty_copy(source, lines, changes, path))
    write_if_changed(os.path.join(out, "fault_names.cc"), names_file(faults))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True, help="root of the repository")
    parser.add_argument("--out", help="the folder of the copies")
    parser.add_argument("--list", action="store_true", help="name the sources that have faults")
    parser.add_argument("folders", nargs="+", help="folders of fault files")
    arguments = parser.parse_args()
    root = os.path.realpath(arguments.source)
    try:
        faults = read_faults(root, [os.path.realpath(folder) for folder in arguments.folders])
        if arguments.list:
            print("\n".join(sources_of(faults)))
        else:
            plant(root, arguments.out, faults)
    except Misfit as misfit:
        print(f"error: {misfit}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
