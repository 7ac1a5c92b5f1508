# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes what a package is made of, as SPDX 2.3 in JSON.

    sbom.py <package> <build root> [<output>]

The package is a wheel of scripts/wheel.sh or one of Debian of scripts/package.sh, the
build root that of its build. What others made is found where it came from: libraries in
the package, archives that its programs were linked with, headers that were compiled,
and what the package of Debian depends on; each is a package of Debian, whose version is
the one that is installed here. The output is <package>.spdx.json by default.
"""

import datetime
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

# What Debian calls the licences of what is used, and what SPDX does.
LICENCES = {
    "Apache-2.0": "Apache-2.0", "Apache-2": "Apache-2.0", "Expat": "MIT", "MIT": "MIT", "X11": "X11", "Zlib": "Zlib",
    "BSD-3-clause": "BSD-3-Clause", "BSD-3-Clause": "BSD-3-Clause", "GPL-3+": "GPL-3.0-or-later", "PSF-2": "PSF-2.0",
    "Apache-2.0 with LLVM Exceptions": "Apache-2.0 WITH LLVM-exception",
    "APACHE-2-LLVM-EXCEPTIONS": "Apache-2.0 WITH LLVM-exception",
}
# From the strongest: a package that is here in two ways is named by the first.
RELATIONS = ("CONTAINS", "STATIC_LINK", "DEPENDS_ON", "BUILD_DEPENDENCY_OF", "BUILD_TOOL_OF")


def output(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def owners(paths):
    """Returns the packages of Debian that files came with, by file."""
    paths = sorted({os.path.realpath(path) for path in paths})
    found = {}
    if paths:
        text = subprocess.run(["dpkg-query", "--search", *paths], capture_output=True, text=True).stdout
        for line in text.splitlines():
            names, _, path = line.rpartition(": ")
            found[path] = names.partition(",")[0].partition(":")[0]
    missing = [path for path in paths if path not in found]
    if missing:
        sys.exit(f"error: expected a package of Debian that has '{missing[0]}', but got none")
    return found


def build_id(path):
    found = re.search(r"Build ID: (\w+)", output("readelf", "--notes", path))
    return found and found[1]


def origin(copy):
    """Returns the installed library that a file is a copy of."""
    system = {}
    for line in output("/sbin/ldconfig", "--print-cache").splitlines():
        name, _, path = line.strip().partition(" => ")
        system.setdefault(name.partition(" ")[0], []).append(path)
    soname = Path(copy).name
    paths = [*system.get(soname, ()), *map(str, Path("/usr/lib").glob(f"llvm-*/lib/{soname}"))]
    path = next((path for path in paths if build_id(path) == build_id(copy)), None)
    if path is None:
        sys.exit(f"error: expected '{soname}' of the package to be one of this system, but got none with its build ID")
    return path


def foreign(folder):
    """Returns the libraries in a folder that are not the project's."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith("libbsr_"))


def carried(package):
    """Returns the installed libraries that the wheel has copies of."""
    with zipfile.ZipFile(package) as wheel, tempfile.TemporaryDirectory() as folder:
        names = [name for name in wheel.namelist() if "/bundle/lib/" in name and not name.endswith("/")]
        wheel.extractall(folder, names)
        libraries = Path(folder) / "sparse_opt/bundle/lib"
        return [origin(path) for path in foreign(libraries)] if names else []


def link_lines(build, programs):
    """Yields the libraries that targets of a build of Ninja are linked with."""
    text = (build / "build.ninja").read_text()
    for program in programs:
        rule = re.search(rf"^build {re.escape(program)}[: ].*\n((?:  .*\n)*)", text, re.M)
        if rule is None:
            sys.exit(f"error: expected a build of '{program}' in '{build}', but got none")
        line = re.search(r"^  LINK_LIBRARIES = (.*)", rule[1], re.M)
        yield from line[1].split() if line else ()


def linked(build, tools):
    """Returns the packages whose archives programs and the runtime were linked with."""
    programs = [*sorted(f"bin/{tool}" for tool in tools), "lib/libbsr_runtime.so.1"]
    archives = [word for word in link_lines(build, programs) if word.startswith("/") and word.endswith(".a")]
    return set(owners(archives).values())


def compiled_in(build):
    """Returns the packages whose headers were compiled."""
    headers = set(re.findall(r"^    (/usr/\S+)", output("ninja", "-C", build, "-t", "deps"), re.M))
    return set(owners(headers).values())


def require_build(build):
    if not (Path(build) / "build.ninja").exists():
        sys.exit(f"error: expected a build of Ninja in '{build}', but got none")
    return Path(build)


def ingredients(package, build):
    """Returns the packages of Debian that are in it, by how they are."""
    tools = {"sparse-checkpoint", "sparse-compile", "sparse-train"}
    found = {relation: set() for relation in RELATIONS}
    if package.suffix == ".whl":
        found["CONTAINS"] = set(owners(carried(package)).values())
    else:
        tools |= {f"sparse-{name}" for name in ("lsp-server", "opt", "partition", "reduce", "run")}
        depends = output("dpkg-deb", "--field", package, "Depends")
        found["DEPENDS_ON"] = {re.match(r"[^\s(|]+", one.strip())[0] for one in depends.split(",")}
    found["STATIC_LINK"] = linked(build, tools)
    found["BUILD_DEPENDENCY_OF"] = compiled_in(build)
    cache = (build / "CMakeCache.txt").read_text()
    programs = re.findall(r"^CMAKE_(?:C_COMPILER|CXX_COMPILER|LINKER|COMMAND|MAKE_PROGRAM):\w+=(\S+)", cache, re.M)
    found["BUILD_TOOL_OF"] = set(owners(filter(None, map(shutil.which, programs))).values())
    return found


def licence(name):
    """Returns the licence of a package, if its copyright says one that is known here."""
    path = Path("/usr/share/doc") / name / "copyright"
    text = path.read_text(errors="replace") if path.exists() else ""
    whole = re.search(r"^Files: \*.*?\n(?:.*\n)*?License: *(.*)", text, re.M)
    return LICENCES.get(whole[1].strip(), "NOASSERTION") if whole else "NOASSERTION"


def entry(name, distribution):
    version, architecture, homepage, source = output(
        "dpkg-query", "--show", "--showformat=${Version}\t${Architecture}\t${Homepage}\t${source:Package}\n", name
    ).splitlines()[0].split("\t")
    return {
        "name": name,
        "SPDXID": f"SPDXRef-{re.sub('[^A-Za-z0-9.-]', '-', name)}",
        "versionInfo": version,
        "supplier": "Organization: Debian" if distribution.startswith("debian") else "NOASSERTION",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "homepage": homepage or "NOASSERTION",
        "sourceInfo": f"source package {source}",
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": licence(name),
        "copyrightText": "NOASSERTION",
        "externalRefs": [{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": f"pkg:deb/{distribution.partition('-')[0]}/{name.replace('+', '%2B')}"
                                f"@{version.replace('+', '%2B').replace(':', '%3A')}?arch={architecture}&distro={distribution}",
        }],
    }


def document(package, build, commit, date):
    system = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    distribution = "-".join(system.get(key, "").strip('"') for key in ("ID", "VERSION_ID"))
    checksum = hashlib.sha256(package.read_bytes()).hexdigest()
    version = re.search(r"[-_](\d[\w.]*?)(?:_amd64|-py3)", package.name)[1]
    ours = {
        "name": "sparse-opt",
        "SPDXID": "SPDXRef-sparse-opt",
        "versionInfo": version,
        "packageFileName": package.name,
        "supplier": "Organization: The sparse-opt authors",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "checksums": [{"algorithm": "SHA256", "checksumValue": checksum}],
        "licenseConcluded": "Apache-2.0 WITH LLVM-exception",
        "licenseDeclared": "Apache-2.0 WITH LLVM-exception",
        "copyrightText": "NOASSERTION",
        "primaryPackagePurpose": "APPLICATION",
    }
    if commit:
        ours["sourceInfo"] = f"commit {commit}"
    packages, relations, named = [ours], [("SPDXRef-DOCUMENT", "DESCRIBES", ours["SPDXID"])], set()
    found = ingredients(package, build)
    for relation in RELATIONS:
        for name in sorted(found[relation] - named):
            one = entry(name, distribution)
            packages.append(one)
            ends = (ours["SPDXID"], one["SPDXID"])
            first, second = ends[::-1] if relation.endswith("_OF") else ends
            relations.append((first, relation, second))
        named |= found[relation]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": package.name,
        "documentNamespace": f"https://spdx.org/spdxdocs/{package.name}-{checksum}",
        "creationInfo": {
            "created": datetime.datetime.fromtimestamp(date, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Organization: The sparse-opt authors", "Tool: sparse-opt-sbom"],
        },
        "packages": packages,
        "relationships": [
            {"spdxElementId": first, "relationshipType": relation, "relatedSpdxElement": second}
            for first, relation, second in relations
        ],
    }


def main(package, build, target=None):
    package = Path(package)
    if package.suffix not in (".whl", ".deb") or not package.exists():
        sys.exit(f"error: expected a wheel or a package of Debian, but got '{package}'")
    build = require_build(build)
    root = Path(__file__).resolve().parent.parent.parent
    try:
        commit, date = output("git", "-C", root, "log", "-1", "--format=%H %ct").split()
    except (OSError, subprocess.CalledProcessError):
        commit, date = "", 946684800
    date = int(os.environ.get("SOURCE_DATE_EPOCH", date))
    text = json.dumps(document(package, build, commit, date), indent=2)
    Path(target or f"{package}.spdx.json").write_text(text + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
