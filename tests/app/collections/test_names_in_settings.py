"""Settings name collections and do not follow a rename: they are told of, and nobody gains a role by it."""

from contextlib import closing

import pytest
from structlog.testing import capture_logs

from app.collections.names import refuse_gained_roles
from app.edge.problems import RequestError
from app.engine import open_engine
from app.health.doctor import examine_roles
from app.health.doctor import renamed as renamed_names
from index.keys.api_keys import Role
from tests.app.collections.test_collection_names import ask, point
from tests.app.conftest import COLLECTION, Indexed, serve
from tests.app.images.test_writes import problem


def test_settings_that_name_a_renamed_collection_are_told_and_give_nothing(own: Indexed) -> None:
    own.index("ward", own.bundle)
    reader: frozenset[Role] = frozenset({"reader"})
    roles = {"radiology": {"ward": reader, "current": reader, "later": reader}, "it": {"*": reader}}
    settings = own.settings.model_copy(update={"oidc_roles": roles, "retrain": ("ward",)})
    with serve(own, oidc_roles=roles, retrain=("ward",)) as running, capture_logs() as lines:
        point(running, "current", COLLECTION)
        renamed = ask(running, "PATCH", "/v1/collections/ward", {"name": "ward-7"})
        assert renamed.status_code == 200, renamed.text
        assert renamed.json()["settings"] == ["RECOQUEST_OIDC_ROLES", "RECOQUEST_RETRAIN"]
        (warning,) = [line for line in lines if "called before" in line["event"]]
        assert (warning["before"], warning["now"]) == ("ward", "ward-7")
        # A new collection of the old name would be read by those who had a role in the renamed one.
        begin = {"name": "ward", "same_model_as": COLLECTION}
        refused = ask(running, "POST", "/v1/collections", begin)
        problem(refused, 409, "groups-of-name")
        assert "'ward-7'" in refused.json()["detail"]
        assert ask(running, "POST", "/v1/collections", begin | {"name": "later"}).status_code == 201
        other = ask(running, "PATCH", f"/v1/collections/{COLLECTION}", {"name": "pictures"})
        assert other.json()["settings"] == []
    with closing(open_engine(settings)) as engine, engine.home.catalogue.read() as session:
        (finding,) = examine_roles(settings, session, engine.names())
        assert finding.state == "doubtful"
        assert "'ward', which is called 'ward-7' now" in finding.found
        assert "'current', which is an alias of 'pictures'" in finding.found
        assert "'later'" not in finding.found
        assert renamed_names(settings, session) == {"ward": "ward-7"}
        good = settings.model_copy(update={"oidc_roles": {"radiology": {"ward-7": reader}}})
        assert [one.state for one in examine_roles(good, session, engine.names())] == ["ok"]
        assert list(examine_roles(own.settings, session, engine.names())) == []
        refuse_gained_roles(good, session, "ward")
        with pytest.raises(RequestError, match="radiology"):
            refuse_gained_roles(settings, session, "ward")


def test_indexing_makes_no_collection_in_which_groups_would_gain_roles(
    own: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(own) as running:
        assert ask(running, "PATCH", f"/v1/collections/{COLLECTION}", {"name": "pictures"}).status_code == 200
    arguments = ["--bundle", own.bundle, "--data", own.manifest.folder, "--device", "cpu"]
    monkeypatch.setenv("RECOQUEST_OIDC_ROLES", f'{{"radiology": {{"{COLLECTION}": ["reader"]}}}}')
    with pytest.raises(RequestError, match="radiology"):
        own.run("index", COLLECTION, *arguments)
    own.run("index", "pictures", *arguments)
    with own.engine() as engine:
        assert engine.names() == ["pictures"]
