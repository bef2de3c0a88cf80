import json
import re
import runpy
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import make_url
from typer.testing import CliRunner

from app.access.hosts import AllowedHosts, parse_authority
from app.access.oidc import CALLBACK
from app.application import create_app
from app.cli.main import build
from app.edge.metrics import Installation, Metrics
from app.settings import PREFIX, Settings
from index.catalogue.jobs import JOB_STATES
from tests.docker.compose import merged_services, read_compose
from tests.docker.dockerfile import ROOT, Stage, read_stages
from tests.needed import needed, needed_module

OVERLAYS = ("production", "monitoring", "gpu", "tls", "login")
SITE = {
    "RECOQUEST_SITE": "images.example.org",
    "RECOQUEST_TLS": "internal",
    "RECOQUEST_LOGIN_SITE": "login.example.org",
}


@pytest.fixture
def service() -> dict[str, Any]:
    found: dict[str, Any] = read_compose()["services"]["recoquest"]
    return found


@pytest.fixture
def image() -> Stage:
    return read_stages()[-1]


def with_defaults(text: str) -> str:
    """Resolves `${NAME:-default}` as Compose does where no variable is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def test_the_port_is_published_on_loopback_only(service: dict[str, Any], image: Stage) -> None:
    (published,) = service["ports"]
    assert with_defaults(published) == f"127.0.0.1:8000:{image.environment['RECOQUEST_PORT']}"


def test_the_build_finds_its_dockerfile(service: dict[str, Any]) -> None:
    assert (ROOT / service["build"]["context"] / service["build"]["dockerfile"]).is_file()


def test_data_lie_on_a_named_volume(service: dict[str, Any], image: Stage) -> None:
    compose = read_compose()
    name, _, target = service["volumes"][0].partition(":")
    assert name in compose["volumes"]
    assert target == image.environment["RECOQUEST_HOME"]


def test_the_container_writes_to_its_volume_and_tmp_only(service: dict[str, Any], image: Stage) -> None:
    assert service["read_only"] is True
    assert [mount.split(":")[0] for mount in service["tmpfs"]] == ["/tmp"]
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert image.environment["MPLCONFIGDIR"].startswith("/tmp/")
    assert image.environment["HOME"] == image.environment["RECOQUEST_HOME"]
    assert "privileged" not in service
    assert "user" not in service, "the image's user owns the volume"


def test_the_health_check_is_the_one_of_the_image(service: dict[str, Any], image: Stage) -> None:
    assert service["healthcheck"]["test"] == ["CMD", *image.last("HEALTHCHECK").words]
    for option, value in re.findall(r"--([\w-]+)=(\S+)", image.last("HEALTHCHECK").value):
        assert str(service["healthcheck"][option.replace("-", "_")]) == value


def test_the_gpu_file_sets_arguments_that_the_build_takes() -> None:
    gpu = read_compose("gpu")["services"]["recoquest"]
    build = next(stage for stage in read_stages() if stage.name == "build")
    assert gpu["build"]["args"] == {"DEVICE": "gpu", "TORCH_INDEX": ""}
    assert set(gpu["build"]["args"]) <= set(build.arguments)
    assert gpu["deploy"]["resources"]["reservations"]["devices"][0]["capabilities"] == ["gpu"]


def test_the_worker_is_a_command_of_the_same_image(service: dict[str, Any]) -> None:
    worker = read_compose()["services"]["worker"]
    assert worker["image"] == service["image"]
    assert worker["volumes"] == service["volumes"]
    assert CliRunner().invoke(build(), [*worker["command"], "--help"]).exit_code == 0
    assert "ports" not in worker


@pytest.mark.parametrize("name", [None, *OVERLAYS])
def test_whatever_runs_is_confined_and_limited(name: str | None) -> None:
    base = read_compose("tls")["services"] | read_compose()["services"]
    for service, own in read_compose(name)["services"].items():
        settings = base.get(service, {}) | own
        assert settings["read_only"] is True, service
        assert settings["cap_drop"] == ["ALL"], service
        assert settings["security_opt"] == ["no-new-privileges:true"], service
        assert "privileged" not in settings, service
        limits = (base.get(service, {}) or own)["deploy"]["resources"]["limits"]
        assert {"memory", "pids"} <= set(limits), service
        # The proxy alone is there for other machines.
        for published in settings.get("ports", []) if service != "proxy" else []:
            assert with_defaults(published).startswith("127.0.0.1:"), service


@pytest.mark.parametrize("name", [None, *OVERLAYS])
def test_whatever_runs_is_asked_whether_it_is_well(name: str | None) -> None:
    base = read_compose("tls")["services"] | read_compose()["services"]
    for service, own in read_compose(name)["services"].items():
        check = (base.get(service, {}) | own)["healthcheck"]
        assert check["test"][0] == "CMD", service
        assert {"interval", "timeout", "retries"} <= set(check), service


def test_a_search_comes_before_a_job_where_both_want_the_processor() -> None:
    services = read_compose()["services"]
    assert services["worker"]["cpu_shares"] * 10 <= services["recoquest"].get("cpu_shares", 1024)


def test_the_worker_is_asked_by_a_file_of_the_image(image: Stage) -> None:
    _, *words = read_compose()["services"]["worker"]["healthcheck"]["test"]
    assert words == [*image.last("HEALTHCHECK").words, "worker"]


def test_the_service_answers_under_the_name_that_prometheus_asks(image: Stage) -> None:
    config = yaml.safe_load((ROOT / "docker" / "monitoring" / "prometheus.yml").read_text("utf-8"))
    (target,) = config["scrape_configs"][0]["static_configs"][0]["targets"]
    host = parse_authority(target)
    assert host is not None
    assert host.name in read_compose()["services"]
    allowed = image.environment["RECOQUEST_ALLOWED_HOSTS"].split(",")
    assert AllowedHosts(allowed, "0.0.0.0").has(host)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_service_and_worker_read_the_same_settings(overlay: str) -> None:
    services = merged_services(overlay, GRAFANA_PASSWORD="g", **SITE)
    service, worker = services["recoquest"], services["worker"]
    assert service["env_file"] == worker["env_file"] == [{"path": "recoquest.env", "required": False}]
    # What stands in a compose file wins over that file.
    for part in ("environment", "secrets", "volumes"):
        assert service.get(part) == worker.get(part)
    (shared,) = service["env_file"]
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    assert f"/{shared['path']}" in ignored, "it holds the admin key"


def test_the_production_file_gives_settings_that_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compose = read_compose("production")
    secrets = {"database-url": "postgresql+psycopg://u:p@postgres/d", "admin-key": "0123456789abcdef"}
    for name, value in secrets.items():
        (tmp_path / name).write_text(f"{value}\n")
        assert with_defaults(compose["secrets"][name]["file"]) == f"./secrets/{name}"
    assert "/secrets/" in (ROOT / ".gitignore").read_text("utf-8").splitlines()
    for name in ("recoquest", "worker"):
        service = compose["services"][name]
        assert set(service["secrets"]) == set(secrets)
        for variable, path in service["environment"].items():
            monkeypatch.setenv(variable, str(tmp_path / path.removeprefix("/run/secrets/")))
        settings = Settings()
        assert settings.database_url is not None
        assert make_url(settings.database_url).host in compose["services"]
        assert settings.admin_key is not None
    wanted = {*(requirement.split(">")[0] for requirement in extra("postgresql"))}
    assert wanted <= {requirement.split(">")[0] for requirement in installed()}


def extra(name: str) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    found: list[str] = project["optional-dependencies"][name]
    return found


def installed() -> list[str]:
    """What the image's build installs."""
    build_stage = next(stage for stage in read_stages() if stage.name == "build")
    (command,) = re.findall(r"requirements\.py pyproject\.toml (.*?) >", str(build_stage.all("RUN")))
    names = command.replace('"$DEVICE"', "cpu").split()
    requirements = runpy.run_path(str(ROOT / "docker" / "requirements.py"))["requirements"]
    found: list[str] = requirements(ROOT / "pyproject.toml", *names)
    return found


@pytest.mark.parametrize("files", [("production", "tls"), ("production", "tls", "login", "monitoring")])
def test_the_proxy_reaches_the_service_and_no_database(files: tuple[str, ...]) -> None:
    services: dict[str, Any] = {}
    for name in (None, *files):
        for service, own in read_compose(name)["services"].items():
            services.setdefault(service, set()).update(own.get("networks", ()))
    reached = {name for name, networks in services.items() if networks & services["proxy"]} - {"proxy"}
    assert reached == {"recoquest"} | ({"keycloak"} if "login" in files else set())
    databases = {name for name in services if name in ("postgres", "login-database")}
    for database in databases:
        assert services[database] in ({"back"}, {"login"})


@pytest.mark.parametrize("name", [None, *OVERLAYS])
def test_no_secret_is_a_value_in_the_file_of_a_service_of_ours(name: str | None) -> None:
    for service, own in read_compose(name)["services"].items():
        for variable, value in own.get("environment", {}).items():
            if re.search("PASSWORD|KEY|SECRET|DATABASE_URL", variable) and service != "grafana":
                assert variable.endswith("_FILE"), (service, variable)
                assert value.removeprefix("/run/secrets/") in own["secrets"], (service, variable)


def test_images_come_from_a_registry_that_can_be_set_and_builds_from_indexes() -> None:
    for name in (None, *OVERLAYS):
        for service, own in read_compose(name)["services"].items():
            image = own.get("image", "recoquest:latest")
            assert image.startswith(("recoquest", "${RECOQUEST_REGISTRY:-docker.io}/")), service
    arguments = read_compose()["services"]["recoquest"]["build"]["args"]
    stages = read_stages()
    defaults = {**stages[0].arguments, **next(one for one in stages if one.name == "build").arguments}
    for argument, value in arguments.items():
        assert with_defaults(value) == defaults[argument], argument


@pytest.mark.parametrize("name", [None, *OVERLAYS])
def test_files_are_as_the_compose_specification_says(name: str | None) -> None:
    compose_spec = needed_module("compose_spec", "make install")
    text = json.dumps(read_compose(name))
    filled = re.sub(r"\$\{\w+:[-?]([^}]*)\}", lambda found: found[1].split(" ")[-1], text)
    assert compose_spec.PyCompose.from_json(filled).service_names()


def test_keycloak_gives_tokens_that_the_service_takes() -> None:
    """The realm, the settings of the service and the roles of its groups agree."""
    realm = json.loads((ROOT / "docker" / "login" / "realm.json").read_text("utf-8"))
    environment = merged_services("login", **SITE)["recoquest"]["environment"]
    values = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environment.items()
        if name.startswith(PREFIX)
    }
    settings = Settings.model_validate(values)
    assert settings.oidc_issuer == f"https://{SITE['RECOQUEST_LOGIN_SITE']}/realms/{realm['realm']}"
    (client,) = realm["clients"]
    assert client["publicClient"] and client["standardFlowEnabled"]
    assert not client["directAccessGrantsEnabled"] and not client["implicitFlowEnabled"]
    assert client["attributes"]["pkce.code.challenge.method"] == "S256"
    assert client["clientId"] == settings.oidc_client_id
    assert settings.oidc_client_secret is None
    assert settings.public_url == f"https://{SITE['RECOQUEST_SITE']}"
    assert client["redirectUris"] == [f"https://${{RECOQUEST_SITE}}{CALLBACK}"]
    mappers = {mapper["protocolMapper"]: mapper["config"] for mapper in client["protocolMappers"]}
    groups = mappers["oidc-group-membership-mapper"]
    assert groups["claim.name"] == settings.oidc_groups_claim and groups["full.path"] == "false"
    assert mappers["oidc-audience-mapper"]["included.client.audience"] == settings.oidc_audience
    known = {group["name"] for group in realm["groups"]}
    assert known == set(settings.oidc_roles) == {"radiology", "it", "audit"}
    for user in realm["users"]:
        assert not {"credentials", "password"} & set(user), "a password that everybody knows"
        assert {group.removeprefix("/") for group in user["groups"]} <= known


def given_figures() -> set[str]:
    """Names of all figures that a service gives once it has done one thing of each kind."""
    metrics = Metrics()
    metrics.answered("search", 200, 0.1)
    metrics.encoded("text", 1, 0.1)
    metrics.key_refused("wrong")
    metrics.installation_read(Installation(1, 2, 0, {"failed": 1}, None))
    return {
        sample.name
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def test_alerts_are_about_figures_that_the_service_gives() -> None:
    (group,) = yaml.safe_load((ROOT / "docker" / "monitoring" / "alerts.yml").read_text("utf-8"))["groups"]
    given = given_figures() | {"up"}
    page = (ROOT / "docs" / "operate" / "runbook.md").read_text("utf-8")
    for rule in group["rules"]:
        named = set(re.findall(r"\b(?:recoquest_\w+|up)\b", rule["expr"]))
        assert named, rule["alert"]
        assert named <= given, rule["alert"]
        assert f"| `{rule['alert']}` |" in page, "what to do about it"


def test_alerts_fire_when_something_is_wrong_and_only_then() -> None:
    promtool = needed(shutil.which("promtool"), "promtool", "apt-get install prometheus")
    for words in (
        ("check", "rules", ROOT / "docker" / "monitoring" / "alerts.yml"),
        ("test", "rules", ROOT / "tests" / "docker" / "alerts.yml"),
    ):
        done = subprocess.run([promtool, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_shows_figures_that_the_service_gives() -> None:
    dashboard = json.loads((ROOT / "docker" / "monitoring" / "dashboard.json").read_text("utf-8"))
    given = given_figures()
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            named = set(re.findall(r"\b(?:recoquest|process)_\w+", target["expr"]))
            assert named, panel["title"]
            assert named <= given, panel["title"]


def test_monitoring_selects_operations_and_states_that_there_are() -> None:
    described = create_app().openapi()
    there = {
        "operation": {
            operation["operationId"]
            for methods in described["paths"].values()
            for name, operation in methods.items()
            if name in {"get", "post", "put", "patch", "delete"}
        },
        "state": set(JOB_STATES),
    }
    for path in (
        "docker/monitoring/alerts.yml",
        "docker/monitoring/dashboard.json",
        "tests/docker/alerts.yml",
    ):
        text = (ROOT / path).read_text("utf-8").replace('\\"', '"')
        selected = re.findall(r'\b(operation|state)=~?"([^"]*)"', text)
        assert any(label == "operation" for label, _ in selected), path
        for label, values in selected:
            assert set(values.split("|")) <= there[label], path


@pytest.mark.parametrize("name", OVERLAYS)
def test_files_that_are_mounted_are_there(name: str) -> None:
    for service in read_compose(name)["services"].values():
        for mount in service.get("volumes", ()):
            if mount.startswith("."):
                assert (ROOT / mount.split(":")[0]).is_file(), mount


def test_prometheus_asks_the_service() -> None:
    scraped = yaml.safe_load((ROOT / "docker" / "monitoring" / "prometheus.yml").read_text("utf-8"))
    assert scraped["scrape_configs"][0]["static_configs"] == [{"targets": ["recoquest:8000"]}]


def test_the_runbook_names_compose_files_that_there_are() -> None:
    page = (ROOT / "docs" / "operate" / "runbook.md").read_text("utf-8")
    (together,) = re.findall(r"^COMPOSE_FILE=(.*)$", page, re.MULTILINE)
    *files, override = together.split(":")
    assert all((ROOT / name).is_file() for name in files)
    assert override == "docker-compose.override.yml"
