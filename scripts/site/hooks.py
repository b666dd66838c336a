"""What make site does to a page of docs/ before MkDocs reads it.

The pages are written to be read as files, too: they name other files as `docs/launching.md` or `tests/x/y.cpp`, and link out of
docs/. Here such a name becomes a link, and each file outside of docs/ that a page names is laid into the site as plain text.
What the theme would fetch from the network lies in assets/.
"""
import os
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = r"(?:tests|examples|configs|benchmarks|trireme|scripts)/[\w./-]+\.\w+"
named = set()


def source(path, page):
    """The address, seen from a page, of a file outside of docs/."""
    named.add(path)
    return os.path.relpath(f"sources/{path}.txt", Path(page).parent)


def link_of_name(match, page):
    name = match.group(1)
    if name.startswith("docs/"):
        target = name.removeprefix("docs/")
        same = target == page or not (ROOT / name).is_file()
        return match.group(0) if same else f"[`{name}`]({os.path.relpath(target, Path(page).parent)})"
    return f"[`{name}`]({source(name, page)})" if (ROOT / name).is_file() else match.group(0)


def link_out(match, page):
    """[a.cpp](../../tests/a.cpp) of docs/ideas/x.md; a folder is no link."""
    path = os.path.normpath(Path("docs", page).parent / match.group(2))
    if path.startswith("docs/"):
        return match.group(0)
    return f"[{match.group(1)}]({source(path, page)})" if (ROOT / path).is_file() else f"`{path}`"


def on_page_markdown(markdown, page, **_):
    own = page.file.src_uri
    markdown = re.sub(r"^```(\w+) ([\w./-]+)$", r'```\1 title="\2"', markdown, flags=re.M)  # a block that names its file
    parts = re.split(r"(^```.*?^```$|^(?: {4}.*\n)+)", markdown, flags=re.M | re.S)
    for at in range(0, len(parts), 2):  # not in code
        text = re.sub(r"\[([^\]]*)\]\(((?:\.\./)+[^)#\s]+)\)", lambda found: link_out(found, own), parts[at])
        parts[at] = re.sub(rf"(?<!\[)`(docs/[\w/-]+\.md|{OUTSIDE})`", lambda found: link_of_name(found, own), text)
    return "".join(parts)


def on_post_page(output, page, **_):
    own = os.path.relpath("own", Path(page.file.dest_uri).parent)
    output = re.sub(r"https://[^\"]*/iframe-worker/shim", f"{own}/file_worker.js", output)
    return output.replace("</head>", f'<link rel="stylesheet" href="{own}/pages.css"></head>', 1)


def on_post_build(config, **_):
    shutil.copytree(Path(__file__).parent / "assets", Path(config["site_dir"], "own"), dirs_exist_ok=True)
    Path(config["site_dir"], "404.html").unlink(missing_ok=True)  # a server's page
    for path in sorted(named):
        target = Path(config["site_dir"], "sources", f"{path}.txt")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, target)
