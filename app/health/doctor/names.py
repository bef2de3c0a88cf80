"""The examination of settings that name collections, which may have been renamed since."""

from collections.abc import Iterator, Mapping

from sqlalchemy.orm import Session

from app.health.doctor.finding import Finding
from app.settings import Settings
from index.catalogue.collections import called_now
from index.generations.names import list_aliases
from index.keys.api_keys import EVERY_COLLECTION


def renamed(settings: Settings, session: Session) -> dict[str, str]:
    """Return the present names of renamed collections by those that the settings have."""
    named = {name for grants in settings.oidc_roles.values() for name in grants} | {*settings.retrain}
    found = {name: called_now(session, name) for name in sorted(named)}
    return {name: now for name, now in found.items() if now is not None}


def examine_roles(settings: Settings, session: Session, collections: list[str]) -> Iterator[Finding]:
    """Look whether the collections are there in which groups of the identity provider have roles.

    Args:
        settings: Say who has which.
        session: Session of the catalogue.
        collections: The names of all that there are.
    """
    named = {name for grants in settings.oidc_roles.values() for name in grants} - {EVERY_COLLECTION}
    if not named:
        return
    before = renamed(settings, session)
    behind = {alias.name: alias.collection for alias in list_aliases(session)}
    wrong = [_words(name, before, behind) for name in sorted(named - {*collections})]
    if wrong:
        found = f"RECOQUEST_OIDC_ROLES names {'; '.join(wrong)}: write the names that collections have."
        yield Finding("roles of groups", "doubtful", found)
    else:
        yield Finding("roles of groups", "ok", "every collection that RECOQUEST_OIDC_ROLES names is there")


def _words(name: str, before: Mapping[str, str], behind: Mapping[str, str]) -> str:
    if name in before:
        return f"{name!r}, which is called {before[name]!r} now, and in which no role holds any more"
    if name in behind:
        return f"{name!r}, which is an alias of {behind[name]!r}, and gives no role there"
    return f"{name!r}, which is no collection, and whose roles hold in whatever gets that name"
