"""The repository keeps its rules, and each rule notices a fault planted in a small repository."""
import os
import re
import subprocess
import unittest
from pathlib import Path

import repository
from rules import ROOT, Rules, planted


class Repository(Rules):
    def test_the_program_is_built_with_what_it_opens_when_a_run_asks_for_it(self):
        build = os.environ.get("TRIREME_BUILD_DIR")
        if not build or not (Path(build) / "build.ninja").exists():
            self.skipTest("TRIREME_BUILD_DIR names no build folder of ninja")
        ninja = ["ninja", "-C", build, "-t"]
        known = subprocess.run([*ninja, "targets", "all"], check=True, capture_output=True, encoding="utf-8").stdout
        needed = subprocess.run([*ninja, "inputs", "trireme"], check=True, capture_output=True, encoding="utf-8").stdout.split()
        for name in ("trireme_comm_mpi", "trireme_comm_nccl", "trireme_http", "trireme_parquet"):
            if f"lib{name}.so:" in known:
                self.assertIn(f"lib{name}.so", needed)

    def test_folders_include_only_folders_above_them(self):
        self.keeps(repository.layers)
        self.notices(repository.layers, {"trireme/comm/a.h": '#include "trireme/train/b.h"\n', "trireme/train/b.h": ""},
                     fault="comm stands above train")
        self.notices(repository.layers, {"trireme/comm/a.h": '#include "trireme/base/gone.h"\n'}, fault="does not exist")

        self.notices(repository.layers, {"trireme/comm/a.cu": '#include "trireme/train/b-inl.h"\n', "trireme/train/b-inl.h": ""},
                     fault="comm stands above train")
        for files in ({"trireme/optim/settings.h": '#include "trireme/ops/ops.h"\n', "trireme/ops/ops.h": ""},
                      {"trireme/settings/a.h": '#include "trireme/optim/b.h"\n', "trireme/optim/b.h": ""}):
            self.notices(repository.layers, files, fault="settings see sections, base and config alone")
        self.notices(repository.layers, {"trireme/plan/a.h": '#include "trireme/settings/b.h"\n', "trireme/settings/b.h": ""},
                     fault="plan stands above settings")

    def test_settings_do_without_libtorch(self):
        self.keeps(repository.light_settings)
        self.notices(repository.light_settings, {"trireme/optim/settings.h": '#include "trireme/optim/b.h"\n', "trireme/optim/b.h": "#include <ATen/ATen.h>\n"},
                     fault="reaches <ATen/ATen.h>")

    def test_no_enum_of_settings_is_said_twice(self):
        self.keeps(repository.enums)
        self.notices(repository.enums, {"trireme/optim/settings.h": "enum class Decay { cosine, linear };\n",
                                        "trireme/optim/schedule.h": "struct A {\n  enum Falls {\n    linear,  ///< straight\n    cosine = 3,\n  };\n};\n"},
                     fault="trireme/optim/schedule.h says Falls {cosine, linear}, which is Decay of trireme/optim/settings.h")

    def test_every_source_is_built(self):
        self.keeps(repository.registered)
        self.notices(repository.registered,
                     {"tests/comm/mesh_test.cpp": "", "tests/comm/CMakeLists.txt": "SOURCES other_mesh_test.cpp"},
                     fault="mesh_test.cpp is in no CMakeLists.txt")

        self.notices(repository.registered, {"tests/fuzz/CMakeLists.txt": "set(parsers base/gone.cpp)"}, fault="lists trireme/base/gone.cpp")

    def test_minutes_are_said_in_one_place(self):
        self.keeps(repository.minutes)
        text = (ROOT / "README.md").read_text()
        minutes = (ROOT / "scripts/minutes").read_text()
        self.notices(repository.minutes, {"README.md": text, "scripts/minutes": re.sub("setup=.*", "setup=77", minutes)}, fault="(77 minutes)")

    def test_headers_say_what_they_are(self):
        self.keeps(repository.headers)
        self.notices(repository.headers, {"trireme/base/a.h": "#pragma once\n"}, fault="does not open with a comment")
        self.notices(repository.headers, {"trireme/base/a.h": "// A.\n"}, fault="#pragma once")

    def test_files_include_what_they_use(self):
        self.keeps(repository.declared)
        self.notices(repository.declared, {"trireme/base/a.h": "std::vector<int> a;\n"}, fault="without <vector>")
        through = {"trireme/base/a.h": "#include <vector>\n", "trireme/base/b.cpp": '#include "trireme/base/a.h"\nstd::vector<int> b;\nfmt::x();\n'}
        self.notices(repository.declared, through, fault="b.cpp uses fmt:: without <fmt/>")

    def test_files_include_the_types_of_ours_that_they_use(self):
        self.keeps(repository.own_types)
        through = {"trireme/base/a.h": "struct OpenFile {};\n", "trireme/base/b.h": '#include "trireme/base/a.h"\n',
                   "trireme/base/c.cpp": '#include "trireme/base/b.h"\nOpenFile c;\n', "trireme/base/d.cpp": "OpenFile* d;\n"}
        self.notices(repository.own_types, through, fault="d.cpp uses OpenFile")

    def test_no_file_holds_forbidden_words(self):
        self.keeps(repository.words)
        self.notices(repository.words, {"a.md": "see https://py" + "pi.org/simple"}, fault="registry")
        self.notices(repository.words, {"a.cpp": "// TO" + "DO: later"}, fault="open end")
        self.notices(repository.words, {"a.cpp": '#include <torch/tor' + 'ch.h>'}, fault="14 s")
        self.notices(repository.words, {"a.cpp": "at::parallel_f" + "or(0, n, 1, f);"}, fault="serial")
        self.notices(repository.words, {"a.cpp": "t.const_data_p" + "tr<float>();"}, fault="clang")

    def test_json_is_parsed_in_one_way(self):
        self.keeps(repository.json_parsers)
        self.notices(repository.json_parsers, {"trireme/data/a.cpp": "const auto j = nlohmann::json::parse(text);"}, fault="a.cpp parses JSON by itself")

    def test_threads_are_started_where_what_they_throw_is_caught(self):
        self.keeps(repository.threads)
        for path in repository.THREADS:
            self.assertTrue((ROOT / path).is_file(), f"{path} is gone: name what has taken its place")
        self.notices(repository.threads, {"trireme/data/a.cpp": "std::vector<std::jthread> workers;"}, fault="a.cpp starts a thread by itself")
        self.notices(repository.threads, {"trireme/data/a.cpp": "auto later = std::async(std::launch::async, work);"}, fault="a.cpp starts a thread by itself")

    def test_make_help_explains_every_target(self):
        self.keeps(repository.make_targets)
        self.notices(repository.make_targets, {"Makefile": "a: ## does a\nb:\n.PHONY: a b\n"}, fault="make b")

    def test_the_loop_and_its_neighbours_stay_short(self):
        for path in repository.MOST_LINES:
            self.assertTrue((ROOT / path).is_file(), f"{path} is gone: name what has taken its place")
            self.assertGreater(len(repository.functions(repository.read(ROOT, path))), 3, path)
        self.keeps(repository.sizes)
        self.notices(repository.sizes, {"trireme/train/loop.cpp": "int a;\n" * 201}, fault="201 lines, more than 200")
        body = "class A {\n public:\n  // {\n  int f(int n) {\n" + "    if (n > 0) { g([] { return '{'; }); }\n" * 60 + "  }\n  int h() { return 0; }\n};\n"
        self.notices(repository.sizes, {"trireme/train/pretrain.cpp": body}, fault="pretrain.cpp:4 begins a function of 62 lines")

    def test_pages_print_what_the_sources_say(self):
        self.keeps(repository.pages)
        self.assertGreater(len(repository.files(ROOT, "docs/adding-*.md")), 1)
        page = "# A\n\n```cpp tests/a/toy_a.cpp\nint a;\n```\n\n| to read | lines |\n|---|---|\n| `tests/a/toy_a.cpp` | 1 |\n"
        self.notices(repository.pages, {"docs/adding-a.md": page, "tests/a/toy_a.cpp": "int b;\n"}, fault="not all of tests/a/toy_a.cpp: 'int a;")
        self.notices(repository.pages, {"docs/adding-a.md": page, "tests/a/toy_a.cpp": "int a;\nint b;\n"}, fault="not all of tests/a/toy_a.cpp")
        self.notices(repository.pages, {"docs/adding-a.md": page.replace("| 1 |", "| 4 |"), "tests/a/toy_a.cpp": "int a;\n"}, fault="4 lines; it has 1")
        self.notices(repository.pages, {"docs/adding-a.md": "```cpp\nint a;\n```\n"}, fault="not in any file")

    def test_layers_agree_with_cmake(self):
        text = (ROOT / "CMakeLists.txt").read_text()
        listed = text.split("set(TRIREME_LAYERS", 1)[1].split(")", 1)[0].split()
        self.assertEqual(listed, repository.LAYERS)

    def test_scripts_can_be_run_and_parsed(self):
        for path in repository.files(ROOT, "scripts/*", ".ci/run"):
            text = repository.read(ROOT, path)
            if text.startswith("#!"):
                self.assertTrue(os.access(ROOT / path, os.X_OK), f"{path} is not executable")
            if text.startswith("#!/usr/bin/env bash"):
                subprocess.run(["bash", "-n", ROOT / path], check=True)


class Format(unittest.TestCase):
    def test_every_file_is_formatted(self):
        checked = subprocess.run(["scripts/format", "--check"], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(checked.returncode, 0, checked.stderr)


class Lint(unittest.TestCase):
    def test_a_sample_of_files_obeys_clang_tidy(self):
        build = os.environ.get("TRIREME_BUILD_DIR")
        if not build:
            self.skipTest("TRIREME_BUILD_DIR names no configured build folder")
        sample = [] if os.environ.get("TRIREME_SLOW") else ["--sample", "4", "--seed", "trireme"]
        checked = subprocess.run(["scripts/lint", build, *sample], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)


if __name__ == "__main__":
    unittest.main()
