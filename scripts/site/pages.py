# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Puts the pages of the site into one folder, with links that fit there.

    pages.py <source root> <build root> <folder>

README.md is the first page, docs/index.md the list of all; what lies beside the
README stays, and a link to another file of the repository is its name.
"""

import pathlib
import re
import shutil
import sys

LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def main(root, build, folder):
    root, build, folder = map(pathlib.Path, (root, build, folder))
    sources = {root / "README.md": "index.md", root / "docs/index.md": "documentation.md"}
    for path in sorted(root.glob("docs/*")):
        sources.setdefault(path, path.name)
    for name in ("CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md"):
        sources[root / name] = name
    places = {path.resolve(): name for path, name in sources.items()}
    folder.mkdir(parents=True)

    def move(path, match):
        picture, text, target = match.groups()
        file, mark, anchor = target.partition("#")
        if "://" in target or not file:
            return match[0]
        place = places.get((path.parent / file).resolve())
        return f"{picture}[{text}]({place}{mark}{anchor})" if place else text

    for path, name in sources.items():
        if path.suffix == ".md":
            text = LINK.sub(lambda match, path=path: move(path, match), path.read_text())
            (folder / name).write_text(text)
        elif path.is_file():
            shutil.copy(path, folder / name)
    for name in ("site.css", "site.js"):
        shutil.copy(root / "scripts/site" / name, folder)
    # What TableGen makes has no heading of the first level of its own.
    for name, title, page in (("BSRDialect", "The dialect", "dialect"), ("BSRPasses", "The passes", "passes")):
        text = (build / f"docs/{name}.md").read_text()
        # Passes are what TableGen calls parts of a part.
        if not re.search(r"^## ", text, re.M):
            text = re.sub(r"^##(#+ )", r"#\1", text, flags=re.M)
        (folder / f"{page}.md").write_text(f"# {title}\n\n{text}")


if __name__ == "__main__":
    main(*sys.argv[1:])
