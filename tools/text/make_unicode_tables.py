"""Writes server/text/unicode_categories.cc and server/text/unicode_composition.cc.

Versions, as the `tokenizers` library 0.23 has them (tests/server/text/make_vectors.py tells when it changes them):
- general categories: Unicode 16.0, from the package unicodedata2 (PyPI, version 16.0.0)
- canonical composition: Unicode 9.0. Unicode promises that what a version assigns is composed alike ever after, so it
  is the table of 16.0 for characters whose age (DerivedAge.txt of Debian's package unicode-data) is at most 9.0.

    make_unicode_tables.py /usr/share/unicode/DerivedAge.txt server/text
"""
import sys
import textwrap

import unicodedata2

COMPOSITION_VERSION = 9.0
NUM_CODE_POINTS = 0x110000
HANGUL = range(0xAC00, 0xAC00 + 11172)  # composed by arithmetic


def ages(path):
    found = {}
    for line in open(path, encoding="utf-8"):
        fields = [field.strip() for field in line.split("#")[0].split(";")]
        if len(fields) < 2:
            continue
        first, _, last = fields[0].partition("..")
        for code_point in range(int(first, 16), int(last or first, 16) + 1):
            found[code_point] = float(fields[1])
    return found


def category_runs():
    runs = []
    for code_point in range(NUM_CODE_POINTS):
        category = unicodedata2.category(chr(code_point))
        if runs and runs[-1][0] == category:
            runs[-1][1] += 1
        else:
            runs.append([category, 1])
    return "".join(f"{category}{count}" for category, count in runs)


def assigned(age):
    return [c for c in range(NUM_CODE_POINTS) if age.get(c, 99) <= COMPOSITION_VERSION]


def combining_classes(age):
    runs = []
    for code_point in assigned(age):
        value = unicodedata2.combining(chr(code_point))
        if not value:
            continue
        if runs and runs[-1][1] == code_point - 1 and runs[-1][2] == value:
            runs[-1][1] = code_point
        else:
            runs.append([code_point, code_point, value])
    return "".join(f"{first:x}-{last:x}:{value};" for first, last, value in runs)


def decompositions(age):
    entries = []
    for code_point in assigned(age):
        parts = unicodedata2.decomposition(chr(code_point))
        if code_point in HANGUL or not parts or parts.startswith("<"):
            continue
        parts = [int(part, 16) for part in parts.split()]
        composes = unicodedata2.normalize("NFC", chr(code_point)) == chr(code_point)
        joined = "+".join(f"{part:x}" for part in parts)
        entries.append(f"{code_point:x}{'=' if composes else '>'}{joined};")
    return "".join(entries)


def write(folder, name, version, constants):
    lines = ["// Made by tools/text/make_unicode_tables.py. " + version,
             '#include "server/text/unicode_tables.h"', "", "namespace verbatim::text {", ""]
    for constant, text in constants:
        lines.append(f"const std::string_view {constant} =")
        lines += [f'    "{piece}"' for piece in textwrap.wrap(text, 112)]
        lines[-1] += ";"
        lines.append("")
    lines.append("}  // namespace verbatim::text")
    with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def main():
    age, folder = ages(sys.argv[1]), sys.argv[2]
    assert unicodedata2.unidata_version == "16.0.0", unicodedata2.unidata_version
    write(folder, "unicode_categories.cc", "General categories of Unicode 16.0.",
          [("kGeneralCategoryRuns", category_runs())])
    write(folder, "unicode_composition.cc", "Canonical composition of Unicode 9.0.",
          [("kCombiningClassRuns", combining_classes(age)), ("kDecompositions", decompositions(age))])


main()
