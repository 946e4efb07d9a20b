"""Tests of lint.py: it counts every finding once, and no other line of the tools."""

import json
import os
import pathlib
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lint

SOURCE = pathlib.Path("/tree")
TIDY = """/tree/engine/a.cc:3:4: warning: it is odd [bugprone-odd]
    code
/tree/engine/a.cc:3:4: warning: it is odd [bugprone-odd]
/usr/include/b.h:1:1: warning: it is odd [bugprone-odd]
/tree/tests/a.cc:1:1: warning: it is odd [bugprone-odd]
kernels/c.h:9:1: error: unknown [clang-diagnostic-error]
Suppressed 12 warnings.
"""
CPPCHECK = """engine/a.cc:3: warning: uninitvar: Uninitialized variable: x
nofile:0: information: missingIncludeSystem: headers
"""


class LintTest(unittest.TestCase):
    def test_a_finding_is_a_line_about_a_source(self):
        self.assertEqual(lint.findings(TIDY, lint.TIDY_FINDING, SOURCE),
                         {"engine/a.cc:3:4: warning: it is odd [bugprone-odd]",
                          "kernels/c.h:9:1: error: unknown [clang-diagnostic-error]"})
        self.assertEqual(lint.findings(CPPCHECK, lint.CPPCHECK_FINDING, SOURCE),
                         {"engine/a.cc:3: warning: uninitvar: Uninitialized variable: x"})

    def test_tests_are_not_among_the_units(self):
        database = json.dumps([{"directory": "/tree/build", "file": file}
                               for file in ("/tree/engine/a.cc", "/tree/tests/a.cc", "engine/unity_0.cxx")])
        self.assertEqual(lint.translation_units(database, ""), ["/tree/build/engine/unity_0.cxx", "/tree/engine/a.cc"])
        self.assertEqual(lint.translation_units(database, "unity"), ["/tree/build/engine/unity_0.cxx"])


if __name__ == "__main__":
    unittest.main()
