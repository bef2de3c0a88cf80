"""A provider of OpenID Connect for the tests of callers."""

from collections.abc import Iterator

import pytest

from tests.needed import needed
from tests.oidc import OidcProvider, installed_provider, serve_provider


@pytest.fixture(scope="session")
def oidc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OidcProvider]:
    package = needed(installed_provider(), "npm's oidc-provider", "`apt-get install npm`, and a registry")
    with serve_provider(package, tmp_path_factory.mktemp("oidc")) as running:
        yield running
