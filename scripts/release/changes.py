# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints what changed from tag to tag, newest first, as Markdown.

    changes.py <source root> [--untagged]

Of each version vX.Y.Z: what CHANGELOG.md says of it, and the subjects of its commits.
With --untagged the commit that is checked out counts as the version that follows.
"""

import re
import subprocess
import sys
from pathlib import Path

TAG = re.compile(r"v(\d+)\.(\d+)\.(\d+)")


def git(root, *arguments):
    return subprocess.run(["git", "-C", root, *arguments], check=True, capture_output=True, text=True).stdout


def sections(text):
    """Returns the parts of CHANGELOG.md by their versions."""
    _, *parts = re.split(r"^## (\d+\.\d+\.\d+).*\n", text, flags=re.M)
    return dict(zip(parts[::2], parts[1::2]))


def main(root, *options):
    written = sections((Path(root) / "CHANGELOG.md").read_text())
    tags = [tag for tag in git(root, "tag", "--merged", "HEAD").split() if TAG.fullmatch(tag)]
    tags.sort(key=lambda tag: tuple(map(int, TAG.fullmatch(tag).groups())))
    versions = [(tag.removeprefix("v"), tag) for tag in tags]
    if options:
        newest = next((version for version in written if f"v{version}" not in tags), None)
        if newest is not None:
            versions.append((newest, "HEAD"))
    before = ""
    pages = []
    for version, end in versions:
        if version not in written:
            sys.exit(f"error: expected CHANGELOG.md to say what changed in {version}, but got nothing")
        date = git(root, "log", "-1", "--format=%cs", end).strip()
        commits = git(root, "log", "--no-merges", "--format=- %s", f"{before}..{end}" if before else end)
        pages.append(f"## {version} ({date})\n\n{written[version].strip()}\n\n### Commits\n\n{commits}")
        before = end
    print("# Changes of sparse-opt\n\n" + "\n".join(reversed(pages)), end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
