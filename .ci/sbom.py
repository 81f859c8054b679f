"""Write dist/vernier-VERSION.cdx.json: what this environment consists of, as CycloneDX 1.6.

Name, version, licence and package address of everything that is installed beside Vernier. pip does not record the hash
of the file that it installed a package from; where the hash is known (a file that was given by its path or address, or
a release that is a single file) it is listed, and for every package the hash of its RECORD, which lists the hashes of
all installed files.
"""

import hashlib
import json
import sys
import uuid
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

sys.path.insert(0, str(Path(__file__).parent))
from lock import DEVELOPERS, USERS, locked

REPO = Path(__file__).resolve().parents[1]
Tree = dict[str, Any]


def bill() -> Tree:
    """The whole document."""
    installed = {canonicalize_name(d.metadata["Name"]): d for d in distributions() if d.metadata["Name"]}
    vernier = installed.pop("vernier")
    locks = [locked(file) for file in (USERS, DEVELOPERS) if file.exists()]
    single = {name: digests[0] for lock in locks for name, (_, digests) in lock.items() if len(digests) == 1}
    components = [component(installed[name], single.get(name, "")) for name in sorted(installed)]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "component": {**component(vernier, ""), "type": "application"},
        },
        "components": components,
        "dependencies": [{"ref": reference(vernier), "dependsOn": [c["bom-ref"] for c in components]}],
    }


def reference(package: Distribution) -> str:
    return f"pkg:pypi/{canonicalize_name(package.metadata['Name'])}@{package.version.replace('+', '%2B')}"


def component(package: Distribution, digest: str) -> Tree:
    """One package; `digest` is that of the only file of its release."""
    record = package.read_text("RECORD") or ""
    origin = json.loads(package.read_text("direct_url.json") or "{}")
    archive = origin.get("archive_info", {}).get("hashes", {}).get("sha256", "")
    known = archive or digest
    return {
        "type": "library",
        "bom-ref": reference(package),
        "name": package.metadata["Name"],
        "version": package.version,
        "purl": reference(package),
        **({"licenses": licences} if (licences := licences_of(package)) else {}),
        **({"hashes": [{"alg": "SHA-256", "content": known}]} if known else {}),
        "properties": [{"name": "vernier:record-sha256", "value": hashlib.sha256(record.encode()).hexdigest()}],
    }


def licences_of(package: Distribution) -> list[Tree]:
    """An SPDX expression where the package has one, otherwise the words it uses."""
    if expression := package.metadata.get("License-Expression"):
        return [{"expression": expression}]
    classifiers = [c for c in package.metadata.get_all("Classifier") or () if c.startswith("License ::")]
    names = [c.rpartition(" :: ")[2] for c in classifiers]
    text = (package.metadata.get("License") or "").strip()
    names = names or ([text] if text and "\n" not in text else [])
    return [{"license": {"name": name}} for name in names]


if __name__ == "__main__":
    document = bill()
    target = REPO / "dist" / f"vernier-{document['metadata']['component']['version']}.cdx.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(f"{target.relative_to(REPO)}: {len(document['components'])} packages\n")
