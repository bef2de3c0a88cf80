"""Carries this machine's pip settings into an image build: `python3 pip_settings.py FOLDER`.

Writes FOLDER/pip.conf from the settings that pip itself reports, files and environment together, and
prints one line for every folder or file that those settings name, in the form of a build volume
(`FROM:TO:ro`). Machines without pip, or without settings, get an empty file.
"""

import ast
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

CARRIED = {"cert", "default-timeout", "extra-index-url", "find-links", "index-url", "retries", "trusted-host"}
CERTIFICATES = "/run/pip-cert.pem"


def effective_settings(listing: str) -> dict[str, str]:
    """Reads what `pip config list` printed; the environment's value of a setting goes before a file's."""
    found: dict[str, str] = {}
    for line in listing.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if key in CARRIED and (section == ":env:" or key not in found):
            found[key] = ast.literal_eval(value)
    return found


def local_paths(settings: dict[str, str]) -> list[Path]:
    """Returns the local folders that hold packages, without those inside another of them."""
    found = set()
    for key in ("find-links", "index-url", "extra-index-url"):
        for word in settings.get(key, "").split():
            if word.startswith("file:"):
                path = Path(unquote(urlsplit(word).path))
                # A local index keeps its files beside the pages that list them.
                found.add(path.parent if key != "find-links" else path)
            elif word.startswith("/"):
                found.add(Path(word))
    return sorted(
        path for path in found if path.exists() and path != Path("/") and not found.intersection(path.parents)
    )


def write_settings(listing: str, folder: Path) -> list[str]:
    """Writes the settings to a folder and returns the volumes that they need."""
    settings = effective_settings(listing)
    volumes = [f"{path}:{path}:ro" for path in local_paths(settings)]
    if "cert" in settings:
        volumes.append(f"{settings['cert']}:{CERTIFICATES}:ro")
        settings["cert"] = CERTIFICATES
    lines = ["[global]"]
    for key, value in sorted(settings.items()):
        lines.append(f"{key} = " + "\n    ".join(value.split()))
    (folder / "pip.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return volumes


if __name__ == "__main__":
    pip = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    sys.stdout.writelines(f"{volume}\n" for volume in write_settings(pip.stdout, Path(sys.argv[1])))
