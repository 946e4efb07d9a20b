"""The swarm finds a test that fails for some seeds, repeats it, and counts what ran."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import swarm

# A program that fails for every third seed, and says how many cases it had.
PROGRAM = """
import os, re, sys
seed = int(re.search(r"seed=(\\d+)", os.environ["RC_PARAMS"]).group(1))
if "fixed" not in sys.argv[1]:
    print(f"cases {seed} .. {seed + 9}")
sys.exit(seed % 3 == 0 and "fails" in sys.argv[1])
"""


class SwarmTest(unittest.TestCase):
    def swarm_of(self, folder, *names, minutes=1):
        program = os.path.join(folder, "program.py")
        with open(program, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        commands = {name: ([sys.executable, program, name], folder) for name in names}
        return swarm.Swarm(commands, 30, minutes, os.path.join(folder, "logs"))

    def test_a_failing_seed_is_kept_with_the_command_that_repeats_it(self):
        with tempfile.TemporaryDirectory() as folder:
            one = self.swarm_of(folder, "Suite.fails", "Suite.passes")
            one.run("Suite.fails", 30)
            one.run("Suite.fails", 31)
            one.run("Suite.passes", 30)
            self.assertEqual(dict(one.failures), {"Suite.fails": 1})
            self.assertEqual(os.listdir(os.path.join(folder, "logs")), ["Suite.fails-30.log"])
            with open(os.path.join(folder, "logs", "Suite.fails-30.log"), encoding="utf-8") as log:
                self.assertTrue(log.readline().startswith('RC_PARAMS="seed=30 max_success=100" '))
            self.assertIn("Suite: 3 runs, 30 cases, 1 failed", one.summary())
            self.assertIn("2 of 2 random tests ran, 3 runs, 30 cases, 1 failed, from seed 30", one.summary())

    def test_tests_take_turns_with_seeds_of_their_own(self):
        with tempfile.TemporaryDirectory() as folder:
            one = self.swarm_of(folder, "A.x", "B.x")
            taken = [one.take() for _ in range(4)]
            self.assertEqual({test for test, _ in taken[:2]}, {"A.x", "B.x"})
            self.assertEqual([test for test, _ in taken[2:]], [test for test, _ in taken[:2]])
            self.assertEqual(len({seed for _, seed in taken}), 4)

    def test_it_ends_with_the_time_and_when_everything_has_failed(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIsNone(self.swarm_of(folder, "A.x", minutes=0).take())
            one = self.swarm_of(folder, "A.fails", minutes=60)
            one.failures["A.fails"] = swarm.MOST_FAILURES
            self.assertIsNone(one.take())

    def test_a_test_without_random_cases_runs_once(self):
        with tempfile.TemporaryDirectory() as folder:
            one = self.swarm_of(folder, "A.fixed", "B.passes")
            for _ in range(4):
                one.run(*one.take())
            self.assertEqual(dict(one.runs), {"A.fixed": 1, "B.passes": 3})
            self.assertIn("1 of 1 random tests ran", one.summary())

    def test_names_of_instances_and_parameters(self):
        self.assertEqual(swarm.base_name("Families/Suite.Test/granite"), "Suite.Test")
        self.assertEqual(swarm.base_name("Suite.Test"), "Suite.Test")

    def test_random_tests_of_this_repository_are_found(self):
        root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
        found = swarm.random_tests(root)
        self.assertIn("EngineModel.EveryRandomWorldGetsWhatTheModelSays", found)
        self.assertNotIn("Windows.DraftsTakeOnlyBlocksThatAreFree", found)


if __name__ == "__main__":
    unittest.main()
