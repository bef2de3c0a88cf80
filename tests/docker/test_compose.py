import re
from typing import Any

import pytest
import yaml

from tests.docker.dockerfile import ROOT, Stage, read_stages


@pytest.fixture
def service() -> dict[str, Any]:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    found: dict[str, Any] = compose["services"]["recoquest"]
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
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
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
    compose = yaml.safe_load((ROOT / "docker" / "compose.gpu.yml").read_text("utf-8"))
    gpu = compose["services"]["recoquest"]
    build = next(stage for stage in read_stages() if stage.name == "build")
    assert gpu["build"]["args"] == {"DEVICE": "gpu", "TORCH_INDEX": ""}
    assert set(gpu["build"]["args"]) <= set(build.arguments)
    assert gpu["deploy"]["resources"]["reservations"]["devices"][0]["capabilities"] == ["gpu"]
