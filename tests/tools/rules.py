"""Tests of rules: functions from a folder to a list of violations, one sentence each."""
import subprocess
import tempfile
import unittest
from pathlib import Path


def planted(**contents):
    """A git repository that holds the files given as {path: text}."""
    folder = tempfile.TemporaryDirectory()
    root = Path(folder.name)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    for name, text in contents["files"].items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return folder, root


ROOT = Path(__file__).resolve().parents[2]


class Rules(unittest.TestCase):
    def keeps(self, rule):
        violations = rule(ROOT)
        if violations:
            self.fail("\n" + "\n".join(violations))

    def notices(self, rule, files, *, fault):
        folder, root = planted(files=files)
        with folder:
            violations = rule(root)
        self.assertEqual(len(violations), 1, violations)
        self.assertIn(fault, violations[0])
