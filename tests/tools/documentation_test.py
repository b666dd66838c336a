"""The pages of docs/ keep their rules, and each rule notices a fault planted in a small repository. tests/docs runs their commands."""
import subprocess
import tempfile
import unittest
from pathlib import Path

import documentation
from rules import ROOT, Rules, planted


class Documentation(Rules):
    def passes(self, rule, files):
        folder, root = planted(files=files)
        with folder:
            self.assertEqual(rule(root), [])

    def test_links_lead_to_files_and_headings(self):
        self.keeps(documentation.links)
        self.notices(documentation.links, {"docs/a.md": "See [b](b.md).\n"}, fault="docs/a.md:1 links to b.md, which does not exist")
        self.notices(documentation.links, {"docs/a.md": "\n[b](b.md#two)\n", "docs/b.md": "# One\n"}, fault="docs/a.md:2 links to b.md#two, and docs/b.md has no such heading")
        self.notices(documentation.links, {"docs/x/a.md": "![b](../b.svg)\n"}, fault="b.svg, which does not exist")
        self.notices(documentation.links, {"docs/a.md": "[b](https://b.example)\n"}, fault="outside of the repository")
        self.passes(documentation.links, {"docs/a.md": "[b](b.md#one-and--two-1) [c](#c)\n\n```sh\n[d](d.md)\n```\n\n# C\n", "docs/b.md": "# One and `+` two\n# One and + two\n"})

    def test_files_that_pages_name_exist(self):
        self.keeps(documentation.named_files)
        self.notices(documentation.named_files, {"docs/a.md": "See `tests/b.py`.\n"}, fault="names tests/b.py")

    def test_runs_on_pages_have_an_end(self):
        self.keeps(documentation.endless)
        self.notices(documentation.endless, {"docs/a.md": "So:\n\n    trireme pretrain llama-5m --devices 2\n"}, fault="docs/a.md has a run without an end")
        self.passes(documentation.endless, {"docs/a.md": "    trireme pretrain m --train.epochs 2\n    trireme pretrain ... --predict\n    trireme pretrain --resume out\n"})

    def test_sentences_of_teaching_pages_are_short(self):
        self.keeps(documentation.long_sentences)
        long = "It is " + "long " * 29 + "now.\n"
        self.notices(documentation.long_sentences, {"docs/ideas/a.md": f"# A\n\nShort. {long}"}, fault="docs/ideas/a.md:3 has a sentence of 32 words")
        self.notices(documentation.long_sentences, {"docs/glossary.md": f"- Short.\n- {long}"}, fault="docs/glossary.md:2 has")
        self.notices(documentation.long_sentences, {"docs/choosing.md": "It is `a " + "b " * 30 + "c`.\n"}, fault="docs/choosing.md:1 has")
        self.passes(documentation.long_sentences, {"docs/other.md": long, "docs/papers.md": f"| {long.strip()} |\n\n```text\n{long}```\n\n{'Nine words are a sentence that nobody minds reading. ' * 5}\n"})

    def test_commands_of_teaching_pages_stand_where_they_are_run(self):
        self.keeps(documentation.commands_in_blocks)
        self.assertGreater(len(documentation.teaching(ROOT)), 25)
        self.notices(documentation.commands_in_blocks, {"docs/start/a.md": "```text\ntrireme pretrain\n```\n"}, fault="in a block of text")
        self.notices(documentation.commands_in_blocks, {"docs/start/a.md": "A:\n\n    trireme pretrain\n"}, fault="indented block")

    def test_the_index_and_the_site_have_every_page(self):
        self.keeps(documentation.index)
        pages = {"docs/README.md": "[a](a.md)\n", "docs/a.md": "", "scripts/site/mkdocs.yml": "nav:\n  - README.md\n  - A: a.md\n"}
        self.passes(documentation.index, pages)
        self.notices(documentation.index, pages | {"docs/README.md": "a.md\n"}, fault="no link to a.md")
        self.notices(documentation.index, pages | {"scripts/site/mkdocs.yml": "nav:\n  - README.md\n"}, fault="does not list a.md")

    def test_every_family_of_models_has_commented_settings(self):
        self.keeps(documentation.configs)
        catalogue = {"trireme/model/catalogue.cpp": '  {"a-2-7b",   L,  {1}},\n  {"a-2-13b-v0.1",  L,  {1}},\n'}
        good = "# A.\nmodel:\n  name: a-2-7b  # a\nb: 1  # b\nc: 1  # c\nd: 1  # d\ne: 1  # e\n"
        self.passes(documentation.configs, catalogue | {"configs/a.yaml": good})
        self.notices(documentation.configs, catalogue | {"configs/a.yaml": good.replace("a-2", "a-3")}, fault="has the family a-2")
        self.notices(documentation.configs, catalogue | {"configs/a.yaml": good.replace("  # e", "")}, fault="fewer than five comments")
        self.notices(documentation.configs, catalogue | {"configs/a.yaml": good[5:]}, fault="does not open with a comment")

    def test_the_site_is_made_and_fetches_nothing(self):
        self.notices(documentation.fetched, {"a/b.html": '<link href="c.css"><script src="https://b.example/x.js"></script><a href="https://c.example">c</a>'}, fault="a/b.html fetches https://b.example/x.js")
        self.notices(documentation.raw, {"a.html": "<p>```cpp b.cpp\nint c;\n```</p><pre>```</pre>"}, fault="a.html shows ```")
        self.notices(documentation.raw, {"a.html": "<p>| b |\n|---|</p><code>|---|</code>"}, fault="a.html shows |---")
        if not (ROOT / ".cache/site-generator/done").exists():
            self.skipTest("scripts/setup --docs has not installed the site's generator")
        with tempfile.TemporaryDirectory() as folder:
            made = subprocess.run([ROOT / "scripts/site/build", folder], capture_output=True, text=True)
            self.assertEqual(made.returncode, 0, made.stderr)
            self.assertEqual(documentation.fetched(Path(folder)), [])
            self.assertEqual(documentation.raw(Path(folder)), [])
            pages = [page.relative_to("docs") for page in documentation.pages(ROOT)]
            for page in pages:
                self.assertTrue((Path(folder) / page.with_suffix(".html")).exists() or page.name == "README.md", page)
            found = (Path(folder) / "search/search_index.js").read_text()
            for word in ("reduce-scatter", "zb_h1", "optimizer.lr"):
                self.assertIn(word, found)


if __name__ == "__main__":
    unittest.main()
