# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the links of the pages: files and headings exist, and every page is listed.

    check_links.py <source root>

Links to other sites are left alone: no network is needed.
"""

import re
import sys
from pathlib import Path

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def prose(text):
    """Yields the lines outside of fences."""
    fenced = False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        if not fenced:
            yield line


def anchors(path):
    """Returns what a forge and mkdocs call the headings of a page."""
    headings = [line.lstrip("#").strip() for line in prose(path.read_text()) if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def check(root, page):
    """Yields what is wrong with the links of a page."""
    text = re.sub(r"`[^`\n]*`", "", "\n".join(prose(page.read_text())))
    for target in LINK.findall(text):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        name = page.relative_to(root)
        if not path.exists():
            yield f"{name}: expected a file, but got a link to '{target}'"
        elif anchor and anchor not in anchors(path):
            yield f"{name}: expected a heading, but got a link to '{target}'"


def main(root):
    root = Path(root).resolve()
    docs = sorted(root.glob("docs/*.md"))
    pages = sorted(root.glob("*.md")) + docs
    errors = [error for page in pages for error in check(root, page)]
    for listing in ("docs/index.md", "mkdocs.yml"):
        listed = set(re.findall(r"([\w-]+)\.md", (root / listing).read_text()))
        errors += [f"{listing}: expected docs/{page.name} to be listed, but it is not"
                   for page in docs if page.stem not in (*listed, "index")]
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors or not pages else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
