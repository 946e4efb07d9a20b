#!/usr/bin/env python3
"""What plant.py makes of fault files, and what it says about those that do not fit."""

import os
import tempfile
import unittest

import plant

SOURCE = """int first() {
    return 1;
}
int second() {
    int x = 2;
    return x;
}
int third() {
    int x = 2;
    return x;
}
"""


class PlantTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.write("a/x.cc", SOURCE)

    def write(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def fault(self, name, places):
        self.write(f"faults/{name}.fault", f"what {name} does\n\n{places}")

    def copy(self):
        """The lines of the copy, without what only keeps their numbers."""
        faults = plant.read_faults(self.root, [os.path.join(self.root, "faults")])
        plant.plant(self.root, os.path.join(self.root, "out"), faults)
        with open(os.path.join(self.root, "out/a/x.cc"), encoding="utf-8") as file:
            return [line for line in file.read().splitlines() if not line.startswith("#line")]

    def misfit(self):
        with self.assertRaises(plant.Misfit) as caught:
            self.copy()
        return str(caught.exception)

    def test_every_fault_is_in_the_copy_behind_its_number(self):
        self.fault("b_two", "@@ a/x.cc\n-return 1;\n+return FAULT ? 2 : 1;\n")
        self.fault("a_one", "@@ a/x.cc\n int second() {\n     int x = 2;\n+    if (FAULT) return 3;\n")
        copy = self.copy()
        self.assertIn("return ::verbatim::planted::is_on(1) ? 2 : 1;", copy)
        at = copy.index("    if (::verbatim::planted::is_on(0)) return 3;")
        self.assertEqual(copy[at - 2:at], ["int second() {", "    int x = 2;"])
        self.assertEqual(len(copy), 1 + len(SOURCE.splitlines()) + 1)
        with open(os.path.join(self.root, "out/fault_names.cc"), encoding="utf-8") as file:
            names = file.read()
        self.assertLess(names.index('{"a_one", "a/x.cc"}'), names.index('{"b_two", "a/x.cc"}'))

    def test_lines_of_the_copy_have_the_numbers_of_the_source(self):
        self.fault("one", "@@ a/x.cc\n-return 1;\n+int y = 1;\n+return FAULT ? 2 : y;\n")
        self.copy()
        with open(os.path.join(self.root, "out/a/x.cc"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        after = lines.index("}")
        self.assertEqual(lines[after - 1], f'#line 3 "{self.root}/a/x.cc"')

    def test_a_line_that_is_gone_is_named_with_the_nearest(self):
        self.fault("one", "@@ a/x.cc\n-    return 1 + 1;\n+    return FAULT ? 2 : 1;\n")
        self.assertEqual(self.misfit(), "faults/one.fault:3: does not fit a/x.cc: "
                                        "no line is `return 1 + 1;`; line 2 is `return 1;`")

    def test_a_place_that_is_not_the_only_one_is_named(self):
        self.fault("one", "@@ a/x.cc\n-    int x = 2;\n+    int x = FAULT ? 3 : 2;\n")
        self.assertEqual(self.misfit(), "faults/one.fault:3: fits a/x.cc at lines 5, 9: add lines around it")

    def test_two_faults_do_not_change_one_line(self):
        self.fault("one", "@@ a/x.cc\n-return 1;\n+return FAULT ? 2 : 1;\n")
        self.fault("two", "@@ a/x.cc\n int first() {\n-return 1;\n+return FAULT ? 3 : 1;\n")
        self.assertEqual(self.misfit(),
                         "faults/two.fault:3: changes what faults/one.fault:3 changes, at line 2 of a/x.cc")

    def test_a_fault_without_a_switch_is_refused(self):
        self.fault("one", "@@ a/x.cc\n-return 1;\n+return 2;\n")
        self.assertIn("no + line has the word FAULT", self.misfit())

    def test_a_source_that_is_not_there_is_named(self):
        self.fault("one", "@@ a/y.cc\n-return 1;\n+return FAULT ? 2 : 1;\n")
        self.assertEqual(self.misfit(), "faults/one.fault:3: there is no a/y.cc")

    def test_a_line_of_another_kind_is_named(self):
        self.fault("one", "@@ a/x.cc\nreturn 1;\n")
        self.assertIn("faults/one.fault:4: wanted", self.misfit())


if __name__ == "__main__":
    unittest.main()
