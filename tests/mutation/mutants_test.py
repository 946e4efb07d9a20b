#!/usr/bin/env python3
"""Which mutants are found in a text, and what the copy says."""

import re
import unittest

import mutants


def found_in(text):
    """(kind, before, after) of every mutant; of a token without the statement around it."""
    return [(one.kind, one.before.split(" in ")[0], one.after) for one in mutants.Source(text).mutants]


def in_function(text, head="int f()"):
    return found_in(head + " {\n" + text + "\n}\n")


def copy(text, left_out=()):
    """The copy on one line, MUTANT(n) in place of its call."""
    out, _ = mutants.copy_of(mutants.Source(text), 100, set(left_out))
    out = out.partition("\n")[2].replace("::verbatim::mutation::is_on", "MUTANT")
    return re.sub(r"\s+", " ", out).strip()


class MutantsTest(unittest.TestCase):
    def test_a_condition_is_negated_and_its_tokens_changed(self):
        self.assertEqual(in_function("if (a < b && !c) return;"), [
            ("condition", "a < b && !c", "!(a < b && !c)"), ("comparison", "<", "<="), ("and/or", "&&", "||"),
            ("condition", "!", "!!")])

    def test_constants_go_one_up_and_one_down(self):
        self.assertEqual(in_function("int x = 1'000;"), [("constant", "1'000", "1001"), ("constant", "1'000", "999")])
        self.assertEqual(in_function("auto x = 0u;"), [("constant", "0u", "1u")])
        self.assertEqual(in_function("auto x = 0x10;"), [])

    def test_calls_assignments_and_jumps_are_deleted(self):
        self.assertEqual(in_function("a.b(c)->d();"), [("deletion", "a.b(c)->d()", "")])
        self.assertEqual(in_function("x += y;"), [("deletion", "x += y", ""), ("update", "+=", "=")])
        self.assertEqual(in_function("++x;"), [("deletion", "++x", "")])
        self.assertEqual(in_function("for (;;) continue;"), [("deletion", "continue", "")])

    def test_declarations_stay(self):
        for text in ("Thing thing(a);", "std::vector<int> list;", "const auto& x = y;", "Thing& x = f();"):
            self.assertEqual(in_function(text), [], text)

    def test_of_several_that_are_declared_the_first_is_changed(self):
        self.assertEqual(in_function("int i = 1, j = 2;"), [("constant", "1", "2"), ("constant", "1", "0")])

    def test_min_and_max_are_swapped(self):
        self.assertEqual(in_function("return std::min(a, b);"), [("min/max", "min", "max")])
        self.assertEqual(in_function("return min(a, b);"), [])

    def test_a_function_of_nothing_returns_at_once(self):
        self.assertEqual(in_function("f(x);", "void Engine::go(int x) const")[0],
                         ("early return", "void Engine :: go", "returns at once"))
        self.assertEqual(in_function("", "void f()"), [])
        self.assertEqual(in_function("g();", "public: void f()")[0][0], "early return")
        self.assertEqual(in_function("g();", "template <typename T> void X<T>::f()")[0][0], "early return")

    def test_what_a_function_of_yes_or_no_says_is_negated(self):
        self.assertEqual(in_function("return a;", "bool f()"), [("condition", "a", "!(a)")])
        self.assertEqual(in_function("return a;", "int f()"), [])

    def test_the_question_of_a_choice_is_negated(self):
        for text in ("int x = a.b() ? c : d;", "return a.b() ? c : d;"):
            self.assertEqual(in_function(text), [("condition", "a.b()", "!(a.b())")])
        self.assertEqual(in_function("x += a ? c : d;"), [("deletion", "x += a ? c : d", ""), ("update", "+=", "=")])

    def test_brackets_of_templates_are_no_comparisons(self):
        self.assertEqual(in_function("return f<int64_t>(a, b) < std::vector<int>{}.size();"),
                         [("comparison", "<", "<=")])

    def test_assertions_types_and_constants_of_the_compiler_stay(self):
        for text in ("CHECK(a < 1);", "CHECK_EQ(a + 1, b);", "static_assert(1 < 2);", "constexpr int x = 1;",
                     "using X = Y<1>;", "ASSIGN_OR_RETURN(auto x, f(1));"):
            self.assertEqual(in_function(text), [], text)
        self.assertEqual(found_in("enum class X { kA = 1 };\nstruct Y { int z = 1; };\nint a[] = {1, 2};\n"), [])
        self.assertEqual(in_function("return 1;", "constexpr int f()"), [])
        self.assertEqual(in_function("if (a < 1) f();", "void Cache::verify(int a) const"), [])

    def test_functions_in_types_and_in_statements_are_walked(self):
        text = "struct X {\n  explicit X(int a) : a_(a), b_{1} { g(a); }\n  int f() const { return a_ + b_; }\n};\n"
        self.assertEqual(found_in(text), [("deletion", "g(a)", ""), ("plus/minus", "+", "-")])
        found = in_function("std::ranges::sort(x, [&](int a, int b) { return a < b; });")
        self.assertEqual([kind for kind, _, _ in found], ["deletion", "comparison"])

    def test_loops_and_switches_are_walked(self):
        self.assertEqual([kind for kind, _, _ in in_function("for (int i = 0; i < n; ++i) { f(i); }")],
                         ["constant", "constant", "condition", "comparison", "deletion"])
        self.assertEqual([kind for kind, _, _ in in_function("for (int i = 0; const int x : list) f(x);")],
                         ["constant", "constant", "deletion"])
        self.assertEqual([kind for kind, _, _ in in_function("switch (x) {\n case A: f(); break;\n default: g(); }")],
                         ["deletion"] * 3)
        self.assertEqual([kind for kind, _, _ in in_function("do { f(); } while (a);")], ["deletion", "condition"])
        self.assertEqual([kind for kind, _, _ in in_function("if (const auto x = f(1); x) g();")],
                         ["constant", "constant", "condition", "deletion"])

    def test_comments_strings_and_preprocessor_lines_stay(self):
        self.assertEqual(in_function('// if (a < b) f(1);\n#if A < 1\n#endif\nconst char* x = "a < 1";'), [])

    def test_the_copy_has_every_mutant_behind_its_number(self):
        self.assertEqual(copy("int f() { return a < b; }"),
                         "int f() { { if (MUTANT(100)) return a <= b; else return a < b; } }")
        self.assertEqual(copy("int f() { int x = a + b; }"), "int f() { int x = MUTANT(100) ? (a - b) : (a + b); }")
        self.assertEqual(copy("void f() { g(a); }"),
                         "void f() { if (MUTANT(100)) return; { if (!MUTANT(101)) g(a); } }")
        self.assertEqual(copy("int f() { while (a && b) {} }"),
                         "int f() { while (MUTANT(100) != static_cast<bool>( MUTANT(101) ? (a || b) : (a && b))) {} }")

    def test_an_else_stays_with_its_if(self):
        self.assertEqual(copy("int f() { if (a) b(); else c(); }"),
                         "int f() { if (MUTANT(100) != static_cast<bool>(a)) { if (!MUTANT(101)) b(); } "
                         "else { if (!MUTANT(102)) c(); } }")

    def test_a_mutant_that_is_left_out_leaves_what_was_there(self):
        self.assertEqual(copy("int f() { return a < 1; }", [0]),
                         "int f() { { if (MUTANT(101)) return a < 2; else if (MUTANT(102)) return a < 0; else "
                         "return a < 1; } }")
        self.assertEqual(copy("int f() { int x = a + b; }", [0]), "int f() { int x = a + b; }")
        self.assertEqual(copy("int f() { g(a); }", [0]), "int f() { { if (!false) g(a); } }")

    def test_a_line_of_the_copy_knows_its_mutants(self):
        out, about = mutants.copy_of(mutants.Source("int f() {\n    return a < 1;\n}\n"), 0, set())
        lines = out.splitlines()
        self.assertEqual(about[lines.index("if (::verbatim::mutation::is_on(0)) return a <= 1; else") + 1], {0})
        self.assertEqual(about[lines.index("return a < 1; }") + 1], {0, 1, 2})


if __name__ == "__main__":
    unittest.main()
