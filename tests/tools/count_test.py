"""scripts/count_tests counts what GoogleTest, unittest and other programs say in CTest's log."""
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

GOOGLE = """1/3 Testing: base_tests
[==========] Running 7 tests from 2 test suites.
[==========] 7 tests from 2 test suites ran. (3 ms total)
[  PASSED  ] 4 tests.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Files.NeedsRoot
[  FAILED  ] 2 tests, listed below:
[  FAILED  ] Text.A
 2 FAILED TESTS
Test Failed.
"""
CRASHED = """2/3 Testing: comm_tests
[==========] Running 9 tests from 2 test suites.
[ RUN      ] Mesh.A
Test Failed.
"""
PYTHON = """2/3 Testing: setup_tests
Ran 9 tests in 1.377s
FAILED (failures=1, errors=1, skipped=2)
Test Failed.
"""
OTHER = """3/3 Testing: embed_test
Test Passed.
"""
EXPECTED_TEXT = """4/4 Testing: example_own_loop
Test Pass Reason:
Required regular expression found. Regex=[found]
"""


class Count(unittest.TestCase):
    def counts(self, log, line):
        with tempfile.TemporaryDirectory() as build:
            path = Path(build) / "Testing/Temporary/LastTest.log"
            path.parent.mkdir(parents=True)
            path.write_text("Start testing: now\n" + log)
            found = subprocess.run([ROOT / "scripts/count_tests", build], capture_output=True, text=True, check=True)
        self.assertEqual(found.stdout, f"tests: {line}\n")

    def test_each_kind_of_program(self):
        self.counts(GOOGLE, "4 passed, 2 failed, 1 skipped")
        self.counts(PYTHON, "5 passed, 2 failed, 2 skipped")
        self.counts(OTHER, "1 passed, 0 failed, 0 skipped")
        self.counts(EXPECTED_TEXT, "1 passed, 0 failed, 0 skipped")
        self.counts(GOOGLE + PYTHON + OTHER, "10 passed, 4 failed, 3 skipped")

    def test_a_program_that_crashed_is_a_failure(self):
        self.counts(CRASHED, "0 passed, 1 failed, 0 skipped")

    def test_nothing_ran(self):
        self.counts("", "0 passed, 0 failed, 0 skipped")


if __name__ == "__main__":
    unittest.main()
