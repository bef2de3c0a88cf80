import fnmatch
import re
import subprocess
import tomllib
from pathlib import PurePosixPath
from typing import Any

import pytest

from tests.docker.dockerfile import ROOT, Stage, read_stages


@pytest.fixture
def build() -> Stage:
    return next(stage for stage in read_stages() if stage.name == "build")


@pytest.fixture
def runtime() -> Stage:
    return read_stages()[-1]


@pytest.fixture
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def sent_to_builder(path: str) -> bool:
    """Whether .dockerignore lets a path through: its last pattern for it, or a folder above, decides."""
    sent = True
    candidates = [path, *(str(parent) for parent in PurePosixPath(path).parents)]
    for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        if line and not line.startswith("#"):
            names = [PurePosixPath(path).name] if line.startswith("**/") else candidates
            if any(fnmatch.fnmatch(name, pattern) for name in names):
                sent = line.startswith("!")
    return sent


def test_the_service_does_not_run_as_root(runtime: Stage) -> None:
    user = runtime.last("USER").value
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user), (
        "a fixed number lets orchestrators see that it is not root"
    )
    assert f"--uid {user.split(':')[0]} " in runtime.all("RUN")[0].value


def test_the_user_owns_the_data_folder(runtime: Stage) -> None:
    home = runtime.environment["RECOQUEST_HOME"]
    user, group = runtime.last("USER").value.split(":")
    assert runtime.last("VOLUME").value == home
    assert re.search(rf"--owner={user} --group={group} .*{home}$", runtime.all("RUN")[0].value)


@pytest.mark.parametrize("name", ["ENTRYPOINT", "CMD", "HEALTHCHECK"])
def test_no_shell_stands_between_signals_and_the_service(runtime: Stage, name: str) -> None:
    assert runtime.last(name).words


def test_the_service_is_started_on_every_address_of_its_container(runtime: Stage) -> None:
    assert [*runtime.last("ENTRYPOINT").words, *runtime.last("CMD").words] == [
        "recoquest",
        "serve",
        "--host",
        "0.0.0.0",
    ]
    assert runtime.last("EXPOSE").value == runtime.environment["RECOQUEST_PORT"]


def test_the_health_check_is_a_file_of_the_image(runtime: Stage) -> None:
    script = runtime.last("HEALTHCHECK").words[-1]
    assert any(copy.value.split() == ["docker/healthcheck.py", script] for copy in runtime.all("COPY"))


def test_every_copied_file_exists_and_is_sent_to_the_builder(build: Stage, runtime: Stage) -> None:
    for source in build.copied + runtime.copied:
        assert (ROOT / source).exists(), source
        assert sent_to_builder(source), source


@pytest.mark.parametrize(
    "path", [".git", "recoquest-data/catalogue.sqlite3", ".venv/bin/python", "tests/x.py", ".env"]
)
def test_nothing_else_is_sent_to_the_builder(path: str) -> None:
    assert not sent_to_builder(path)


def test_every_package_is_copied(build: Stage, pyproject: dict[str, Any]) -> None:
    packages = {
        name.removesuffix("*") for name in pyproject["tool"]["setuptools"]["packages"]["find"]["include"]
    }
    assert packages <= set(build.copied)
    assert pyproject["project"]["readme"] in build.copied


def test_dependencies_are_installed_under_the_constraints_and_before_the_code(build: Stage) -> None:
    steps = [f"{each.name} {each.value}" for each in build.instructions]
    install = next(i for i, step in enumerate(steps) if "--requirement" in step)
    assert "--constraint constraints.txt" in steps[install]
    assert any(step.startswith("COPY constraints.txt") for step in steps[:install])
    assert install < steps.index("COPY app app")


def test_torch_is_the_version_of_the_project(build: Stage, pyproject: dict[str, Any]) -> None:
    pinned = f"torch=={build.arguments['TORCH_VERSION']}"
    assert pinned in pyproject["project"]["dependencies"]
    assert pinned in (ROOT / "constraints.txt").read_text("utf-8").splitlines()


def test_the_default_device_is_an_extra_with_a_cpu_index(build: Stage, pyproject: dict[str, Any]) -> None:
    assert build.arguments["DEVICE"] == "cpu"
    assert "cpu" in pyproject["project"]["optional-dependencies"]
    assert build.arguments["TORCH_INDEX"].endswith("/cpu")


@pytest.mark.parametrize(
    ("device", "index", "allowed"),
    [
        ("cpu", "https://packages.example/whl/cpu", True),
        ("gpu", "https://packages.example/whl/cpu", False),
        ("gpu", "", True),
        ("gpu", "https://packages.example/whl/cu130", True),
    ],
)
def test_a_gpu_image_without_cuda_is_refused(build: Stage, device: str, index: str, allowed: bool) -> None:
    guard = next(each.value for each in build.all("RUN") if each.value.startswith("case"))
    run = subprocess.run(
        ["sh", "-c", guard], env={"DEVICE": device, "TORCH_INDEX": index}, capture_output=True, text=True
    )
    assert (run.returncode == 0) is allowed
    assert allowed or "--build-arg TORCH_INDEX=" in run.stderr


def test_the_runtime_stage_installs_nothing(runtime: Stage) -> None:
    assert not any(re.search(r"\b(pip|apt|apt-get|curl)\b", each.value) for each in runtime.all("RUN"))


def test_the_list_of_packages_is_of_the_finished_environment(build: Stage, runtime: Stage) -> None:
    steps = [each.value for each in build.all("RUN")]
    (listed,) = [number for number, step in enumerate(steps) if "cyclonedx-py environment" in step]
    assert not any(re.search(r"(?<!/bin/)\bpip (un)?install", step) for step in steps[listed + 1 :])
    output = re.search(r"--output-file (\S+) /opt/venv/bin/python", steps[listed])
    assert output is not None
    assert any(f"--from=build {output[1]} " in each.value for each in runtime.all("COPY"))
    assert f"cyclonedx-bom=={build.arguments['SBOM_VERSION']}" in (ROOT / "Makefile").read_text("utf-8")
