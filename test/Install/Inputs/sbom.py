# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints how a package's SPDX document relates others to it, and checks the document.

    sbom.py <package>
"""

import hashlib
import json
import re
import sys

package = sys.argv[1]
with open(f"{package}.spdx.json") as file:
    document = json.load(file)
assert document["spdxVersion"] == "SPDX-2.3" and document["dataLicense"] == "CC0-1.0"
assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", document["creationInfo"]["created"])
packages = {one["SPDXID"]: one for one in document["packages"]}
assert len(packages) == len(document["packages"])
for one in document["packages"]:
    assert re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", one["SPDXID"]), one
    assert one["versionInfo"] and one["licenseDeclared"] and one["downloadLocation"], one
root = packages["SPDXRef-sparse-opt"]
with open(package, "rb") as file:
    assert root["checksums"][0]["checksumValue"] == hashlib.sha256(file.read()).hexdigest()
related = {"SPDXRef-sparse-opt"}
for relation in document["relationships"]:
    ends = {relation["spdxElementId"], relation["relatedSpdxElement"]}
    if "SPDXRef-DOCUMENT" in ends:
        assert relation["relationshipType"] == "DESCRIBES"
        continue
    (other,) = ends - {"SPDXRef-sparse-opt"}
    related.add(other)
    print(relation["relationshipType"], packages[other]["name"], packages[other]["versionInfo"])
assert related == set(packages)
print(package, "is whole")
