"""The TypeScript client: its types from the OpenAPI document of today, its packages and its compiler."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from app.application import create_app

CLIENT: Final = Path(__file__).resolve().parents[2] / "clients" / "typescript"
INTEGRATION: Final = CLIENT.parents[1] / "docs" / "guides" / "integrate.md"
TYPES: Final = Path("src", "schema.ts")
_PACKAGES: Final = ("package.json", "package-lock.json", ".npmrc")
_INSTALL_S: Final = 180
_COMPILE_S: Final = 180


def installed_packages() -> Path | None:
    """The folder with the locked packages, installed once; None without Node.js or a registry."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return None
    lock = hashlib.sha256((CLIENT / "package-lock.json").read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "recoquest-tests" / f"typescript-{lock}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        for name in _PACKAGES:
            shutil.copyfile(CLIENT / name, Path(temporary, name))
        install = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        try:
            subprocess.run(install, cwd=temporary, check=True, capture_output=True, timeout=_INSTALL_S)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return None
        # Whole or not there: another test may look for it meanwhile.
        shutil.copytree(temporary, f"{temporary}.whole", symlinks=True)
        try:
            Path(f"{temporary}.whole").rename(folder)
        except OSError:
            shutil.rmtree(f"{temporary}.whole")
    return folder


def compile_client(packages: Path, folder: Path) -> Path:
    """Compile the client, its tests and the docs' example strictly in a folder, and return the folder.

    Its types are of the document of today. The compiled example is `dist-test/example.js`.

    Raises:
        AssertionError: The compiler found something; it is in the message.
    """
    shutil.copytree(CLIENT, folder, ignore=shutil.ignore_patterns("node_modules", "dist"))
    write_types(packages, folder / TYPES)
    (folder / "node_modules").symlink_to(packages / "node_modules")
    (example,) = re.findall(r"```ts\n(.*?)```", INTEGRATION.read_text(encoding="utf-8"), re.DOTALL)
    (folder / "test" / "example.ts").write_text(example, encoding="utf-8")
    for project in (".", "test"):
        command = [str(packages / "node_modules" / ".bin" / "tsc"), "--project", project]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_COMPILE_S)
        assert done.returncode == 0, done.stdout
    return folder


def write_types(packages: Path, target: Path) -> None:
    """Write the types of the service's OpenAPI document of today."""
    generator = packages / "node_modules" / ".bin" / "openapi-typescript"
    with tempfile.TemporaryDirectory() as temporary:
        document = Path(temporary, "openapi.json")
        document.write_text(json.dumps(create_app().openapi()), encoding="utf-8")
        # A field of a request with a default may be left out.
        generate: list[str | Path] = [generator, document, "--output", target, "--default-non-nullable=false"]
        subprocess.run(generate, check=True, stdout=subprocess.DEVNULL, timeout=_COMPILE_S)


if __name__ == "__main__":
    found = installed_packages()
    if found is None:
        sys.exit("Node.js with npm and a registry of packages are needed: `apt-get install npm`.")
    write_types(found, CLIENT / TYPES)
