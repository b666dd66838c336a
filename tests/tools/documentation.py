"""Rules that the pages of docs/ keep, as functions from the repository's root to a list of violations, one sentence each."""
import os
import re
from pathlib import Path

from repository import files, read

# Pages that teach: short sentences, and every command in a block of its own that tests/docs/commands.py runs.
TEACHING = ("docs/README.md", "docs/start/*.md", "docs/ideas/*.md", "docs/choosing.md", "docs/symptoms.md", "docs/glossary.md", "docs/papers.md")
MOST_WORDS = 30
FENCE = re.compile(r"^(`{3,}).*?^\1`*$\n?", re.M | re.S)
INDENTED = re.compile(r"(?:^|(?<=\n\n))(?: {4}.*\n)(?:(?: {4}.*)?\n)*")


def pages(root):
    return files(root, "docs/*.md")


def teaching(root):
    return files(root, *TEACHING)


def blank(match):
    """The same number of lines without a word."""
    return "\n" * match.group(0).count("\n")


def prose(text, indented=True):
    """The page with its blocks of code emptied, so that line numbers stay."""
    text = FENCE.sub(blank, text)
    return INDENTED.sub(blank, text) if indented else text


def slug(heading):
    """The anchor of a heading, as GitHub and the site make it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", lambda found: found.group(1) or "", heading)
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


def anchors(text):
    found = set()
    for heading in re.findall(r"^#{1,6} +(.*)$", prose(text), re.M):
        name = plain = slug(heading)
        number = 0
        while name in found:
            number += 1
            name = f"{plain}-{number}"
        found.add(name)
    return found


def links(root):
    """Links of Markdown that lead to no file or no heading."""
    wrong = []
    for page in pages(root):
        text = re.sub(r"`[^`\n]*`", "", prose(read(root, page)))
        for number, line in enumerate(text.split("\n"), 1):
            for target in re.findall(r"\]\(([^)\s]+)\)", line):
                if re.match(r"[a-z]+:", target):
                    wrong.append(f"{page}:{number} links to {target}, outside of the repository")
                    continue
                name, _, anchor = target.partition("#")
                path = Path(os.path.normpath(page.parent / name)) if name else page
                if not (root / path).exists():
                    wrong.append(f"{page}:{number} links to {target}, which does not exist")
                elif anchor and path.suffix == ".md" and anchor not in anchors(read(root, path)):
                    wrong.append(f"{page}:{number} links to {target}, and {path} has no such heading")
    return wrong


# Files that a page tells the reader to make, or that it makes up.
MADE_UP = {"trireme/schedule/pipelines/one_at_a_time.cpp"}


def named_files(root):
    """Files of the repository that a page names and that do not exist."""
    wrong = []
    for page in pages(root):
        for name in re.findall(r"`((?:docs|tests|examples|benchmarks|configs|scripts)/[\w./-]+\.(?:md|py|cpp|h|yaml|jsonl|svg|csv|txt))`", prose(read(root, page))):
            if not (root / name).exists() and name not in MADE_UP:
                wrong.append(f"{page} names {name}, which does not exist")
    return wrong


def endless(root):
    """Commands that train and that a reader would see refused, because nothing says when to stop."""
    wrong = []
    for page in pages(root):
        for line in re.findall(r"^ {4}(trireme pretrain .*)$", read(root, page), re.M):
            if not re.search(r"\.\.\.|--(?:train\.(?:max_steps|max_tokens|max_time|epochs)|resume|config)\b", line):
                wrong.append(f"{page} has a run without an end: {line}")
    return wrong


def sentences(text):
    """(line, sentence) of everything that is read as prose: no code, no tables."""
    paragraph, first = [], 0
    for number, line in enumerate([*prose(text).split("\n"), ""], 1):
        item = re.match(r"\s*(?:[-*+]|\d+\.)\s+", line)
        ends = not line.strip() or line.lstrip().startswith("|") or item or line.startswith("#") or line.startswith("<!--")
        if ends and paragraph:
            whole = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph))
            yield from ((first, one) for one in re.split(r"(?<=[.!?])[*)]*\s+(?=[\"'(*`\[]*[A-Z0-9`])", whole) if one)
            paragraph = []
        if line.strip() and not line.lstrip().startswith(("|", "#", "<!--")):
            first = first if paragraph else number
            paragraph.append(line[item.end():].strip() if item else line.strip())


def long_sentences(root):
    """Sentences of teaching pages with more words than a reader holds; a piece of code counts by its words, too."""
    wrong = []
    for page in teaching(root):
        for number, sentence in sentences(read(root, page)):
            words = len(re.findall(r"[^\s]*\w[^\s]*", sentence))
            if words > MOST_WORDS:
                wrong.append(f"{page}:{number} has a sentence of {words} words, more than {MOST_WORDS}: {sentence[:90]}...")
    return wrong


def commands_in_blocks(root):
    """Commands of teaching pages that stand where no test would run them: in a block that is not ```sh."""
    wrong = []
    for page in teaching(root):
        text = read(root, page)
        for _, info, block in re.findall(r"^(`{3,})(\S*)[^\n]*\n(.*?)^\1`*$", text, re.M | re.S):
            if info != "sh" and re.search(r"^trireme ", block, re.M):
                wrong.append(f"{page} has a command in a block of {info or 'no language'}, so no test runs it")
        if INDENTED.search(FENCE.sub(blank, text)):
            wrong.append(f"{page} has an indented block; write ```sh or ```text")
    return wrong


def index(root):
    """Pages that docs/README.md or the site's list of pages leaves out."""
    wrong = []
    home, site = root / "docs/README.md", root / "scripts/site/mkdocs.yml"
    linked = set(re.findall(r"\]\(([^)#\s]+\.md)", home.read_text())) if home.is_file() else set()
    listed = set(re.findall(r"[\w/-]+\.md\b", site.read_text())) if site.is_file() else set()
    for page in pages(root):
        name = page.relative_to("docs").as_posix()
        if name != "README.md" and name not in linked:
            wrong.append(f"docs/README.md has no link to {name}")
        if name not in listed:
            wrong.append(f"scripts/site/mkdocs.yml does not list {name}")
    return wrong


def fetched(root, folder="."):
    """What pages of a site would fetch from elsewhere when they are opened."""
    wrong = []
    for page in sorted((root / folder).rglob("*.html")):
        for address in re.findall(r"""<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=["']?(https?://[^"'\s>]+)""", page.read_text(encoding="utf-8")):
            wrong.append(f"{page.relative_to(root)} fetches {address}")
    return wrong


def raw(root, folder="."):
    """Pages of a site that show marks of Markdown, because the generator did not read them as such."""
    wrong = []
    for page in sorted((root / folder).rglob("*.html")):
        text = re.sub(r"<(pre|code|script|style)\b.*?</\1>", "", page.read_text(encoding="utf-8"), flags=re.S)
        wrong += [f"{page.relative_to(root)} shows {mark}" for mark in ("```", "|---", ". - <strong>") if mark in text]
    return wrong


def family(name):
    """llama-3.1 of llama-3.1-8b, gpt2 of gpt2-xl, mistral of mistral-7b-v0.1."""
    return re.sub(r"[-_](?:\d[\d.]*[mb](?:-v[\d.]+)?|tiny|mini|base|medium|large|xl)$", "", name)


def configs(root):
    """Families of named models without a file of settings, and such files without a comment on every group of settings."""
    catalogue = read(root, Path("trireme/model/catalogue.cpp"))
    names = re.findall(r'^\s*\{"([a-z][\w.-]+)",\s+\w+,\s+\{', catalogue, re.M)
    written = {}
    for path in files(root, "configs/*.yaml", ":!:configs/hardware", ":!:configs/ideas"):
        text = read(root, path)
        model = re.search(r"^model: *(?:\n  name: *)?([\w.-]+)", text, re.M)
        written[path] = family(model.group(1)) if model else None
    wrong = [f"no file of configs/ has the family {name}" for name in sorted({family(name) for name in names} - set(written.values()))]
    for path in written:
        text = read(root, path)
        if not text.startswith("# "):
            wrong.append(f"{path} does not open with a comment on what it is for")
        if text.count(" # ") < 5:
            wrong.append(f"{path} has fewer than five comments beside settings")
    return wrong
