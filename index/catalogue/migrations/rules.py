"""Rules that words and findings follow, told apart by their sources."""

from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files
from typing import Final

# Tables of Python's Unicode are left out: hosts of one catalogue may have different ones, and would make all
# rows again in turns.
_MODULES: Final = (
    ("training", "reports/vocabulary.py"),
    ("training", "reports/spelling.py"),
    ("training", "reports/headings.py"),
    ("training", "reports/language.py"),
    ("training", "reports/english.py"),
    ("training", "reports/german.py"),
    ("training", "reports/cues.py"),
    ("training", "reports/findings.py"),
    ("training", "data/readers/scripts.py"),
    ("index", "writes/findings.py"),
    ("index", "catalogue/full_text/tokenizer.py"),
    ("index", "catalogue/full_text/inflection.py"),
    ("index", "catalogue/full_text/storage.py"),
)


def read_rules() -> dict[str, str]:
    """Return the sources of the rules, by the names of their files."""
    return {
        f"{package}/{name}": files(package).joinpath(name).read_text(encoding="utf-8")
        for package, name in _MODULES
    }


def fingerprint(sources: Mapping[str, str]) -> str:
    """Return what tells rules apart: the SHA-256 of their sources, without blank lines and comments."""
    digest = sha256()
    for name, source in sorted(sources.items()):
        lines = [line.rstrip() for line in source.splitlines()]
        code = [line for line in lines if line and not line.lstrip().startswith("#")]
        digest.update("\n".join([name, *code, ""]).encode())
    return digest.hexdigest()
