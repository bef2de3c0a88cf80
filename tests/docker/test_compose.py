import json
import re
import runpy
import tomllib
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import make_url
from typer.testing import CliRunner

from app.access.hosts import AllowedHosts, parse_authority
from app.cli.main import build
from app.observability.metrics import Metrics
from app.settings import PREFIX, Settings
from tests.docker.compose import merged_services, read_compose
from tests.docker.dockerfile import ROOT, Stage, read_stages

OVERLAYS = ("production", "monitoring", "gpu")


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
    base = read_compose()["services"]
    for service, own in read_compose(name)["services"].items():
        settings = base.get(service, {}) | own
        assert settings["read_only"] is True, service
        assert settings["cap_drop"] == ["ALL"], service
        assert settings["security_opt"] == ["no-new-privileges:true"], service
        assert "privileged" not in settings, service
        limits = (base.get(service, {}) or own)["deploy"]["resources"]["limits"]
        assert {"memory", "pids"} <= set(limits), service
        for published in settings.get("ports", []):
            assert with_defaults(published).startswith("127.0.0.1:"), service


@pytest.mark.parametrize("name", [None, *OVERLAYS])
def test_whatever_runs_is_asked_whether_it_is_well(name: str | None) -> None:
    base = read_compose()["services"]
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
    services = merged_services(overlay, POSTGRES_PASSWORD="p", RECOQUEST_ADMIN_KEY="k", GRAFANA_PASSWORD="g")
    service, worker = services["recoquest"], services["worker"]
    assert service["env_file"] == worker["env_file"] == [{"path": "recoquest.env", "required": False}]
    # What stands in a compose file wins over that file.
    assert service.get("environment") == worker.get("environment")
    (shared,) = service["env_file"]
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    assert f"/{shared['path']}" in ignored, "it holds the admin key"


def test_the_production_file_gives_settings_that_there_are() -> None:
    services = read_compose("production")["services"]
    for name in ("recoquest", "worker"):
        values = {
            key.removeprefix(PREFIX).lower(): re.sub(r"\$\{[^}]*\}", "0123456789abcdef", value)
            for key, value in services[name]["environment"].items()
        }
        settings = Settings.model_validate(values)
        assert settings.database_url is not None
        assert make_url(settings.database_url).host in services
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


def test_the_dashboard_shows_figures_that_the_service_gives() -> None:
    dashboard = json.loads((ROOT / "docker" / "monitoring" / "dashboard.json").read_text("utf-8"))
    metrics = Metrics()
    metrics.watch_queues(lambda: 0)
    metrics.answered("search", 200, 0.1)
    metrics.encoded("text", 1, 0.1)
    metrics.searched(0.1)
    metrics.restarted()
    given = {
        sample.name
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            named = set(re.findall(r"\b(?:recoquest|process)_\w+", target["expr"]))
            assert named, panel["title"]
            assert named <= given, panel["title"]


def test_monitoring_mounts_files_that_are_there() -> None:
    for service in read_compose("monitoring")["services"].values():
        for mount in service["volumes"]:
            if mount.startswith("."):
                assert (ROOT / mount.split(":")[0]).is_file(), mount
    scraped = yaml.safe_load((ROOT / "docker" / "monitoring" / "prometheus.yml").read_text("utf-8"))
    assert scraped["scrape_configs"][0]["static_configs"] == [{"targets": ["recoquest:8000"]}]
