"""The manifests of deploy/kubernetes: valid, confined, and of settings that there are."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from sqlalchemy import make_url
from typer.testing import CliRunner

from app.cli.main import build
from app.settings import Settings
from tests.docker.dockerfile import ROOT, read_stages
from tests.needed import needed_module

FOLDER: Final = ROOT / "deploy" / "kubernetes"
VERSIONS: Final = ("1.28", "1.31", "1.34")
Manifest = dict[str, Any]


def _manifests() -> Iterator[Manifest]:
    for name in yaml.safe_load((FOLDER / "kustomization.yaml").read_text("utf-8"))["resources"]:
        yield from yaml.safe_load_all((FOLDER / name).read_text("utf-8"))


def _of(kind: str) -> list[Manifest]:
    return [manifest for manifest in _manifests() if manifest["kind"] == kind]


def _templates() -> dict[str, Manifest]:
    """The pods of each workload."""
    found = {manifest["metadata"]["name"]: manifest["spec"]["template"] for manifest in _of("Deployment")}
    (backup,) = _of("CronJob")
    return {**found, "recoquest-backup": backup["spec"]["jobTemplate"]["spec"]["template"]}


def test_every_file_is_a_resource_of_the_base() -> None:
    resources = yaml.safe_load((FOLDER / "kustomization.yaml").read_text("utf-8"))["resources"]
    assert sorted([*resources, "kustomization.yaml"]) == sorted(path.name for path in FOLDER.iterdir())


@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_are_as_the_schemas_say(version: str) -> None:
    validate = needed_module("kubernetes_validate", "make install").validate
    manifests = list(_manifests())
    assert len(manifests) >= 12
    for manifest in manifests:
        validate(manifest, version, strict=True)


def test_a_pod_has_no_right_that_it_does_not_need() -> None:
    user, group = read_stages()[-1].last("USER").value.split(":")
    for name, template in _templates().items():
        pod = template["spec"]
        context = pod["securityContext"]
        assert context["runAsNonRoot"] is True, name
        assert [context["runAsUser"], context["runAsGroup"]] == [int(user), int(group)], name
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False, name
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert "memory" in container["resources"]["limits"], name


def test_a_pod_mounts_volumes_and_claims_that_there_are() -> None:
    claims = {manifest["metadata"]["name"] for manifest in _of("PersistentVolumeClaim")}
    home = read_stages()[-1].environment["RECOQUEST_HOME"]
    for name, template in _templates().items():
        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        (container,) = template["spec"]["containers"]
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert set(mounts.values()) == set(volumes), name
        assert {home, "/tmp"} <= set(mounts), name
        named = {
            volume["persistentVolumeClaim"]["claimName"]
            for volume in volumes.values()
            if "persistentVolumeClaim" in volume
        }
        assert named <= claims, name


def test_settings_are_known_and_secrets_come_from_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (settings,) = _of("ConfigMap")
    assert not _of("Secret"), "a secret in the repository"
    secrets = {"database-url": "postgresql+psycopg://u:p@db/recoquest", "admin-key": "0123456789abcdef"}
    for name, value in secrets.items():
        (tmp_path / name).write_text(value)
    for name, value in settings["data"].items():
        monkeypatch.setenv(name, value.replace("/run/secrets/recoquest", str(tmp_path)))
    read = Settings()
    assert make_url(str(read.database_url)).host == "db"
    assert read.admin_key is not None
    (ingress,) = _of("Ingress")
    assert {rule["host"] for rule in ingress["spec"]["rules"]} <= set(read.allowed_hosts)
    assert all(host in ingress["spec"]["tls"][0]["hosts"] for host in ("images.example.org",))
    for template in _templates().values():
        (container,) = template["spec"]["containers"]
        assert container["envFrom"] == [{"configMapRef": {"name": settings["metadata"]["name"]}}]
        secret = next(one for one in template["spec"]["volumes"] if one["name"] == "secrets")
        assert secret["secret"]["secretName"] == "recoquest"


def test_what_runs_is_a_command() -> None:
    for template in _templates().values():
        (container,) = template["spec"]["containers"]
        words = container.get("args", ["serve"])
        done = CliRunner().invoke(build(), [words[0], "--help"])
        assert done.exit_code == 0
        assert all(word in done.output for word in words if word.startswith("--"))


def test_the_service_alone_is_reached() -> None:
    templates = _templates()
    everything, service = _of("NetworkPolicy")
    for template in templates.values():
        assert (
            everything["spec"]["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        )
    assert "ingress" not in everything["spec"]
    chosen = service["spec"]["podSelector"]["matchLabels"].items()
    reached = [name for name, one in templates.items() if chosen <= one["metadata"]["labels"].items()]
    assert reached == ["recoquest"]
    (budget,) = _of("PodDisruptionBudget")
    assert budget["spec"]["selector"]["matchLabels"].items() == chosen
    services = {one["metadata"]["name"]: one["spec"].get("selector") for one in _of("Service")}
    assert services == {"recoquest": dict(chosen), "recoquest-nothing": None}


def test_figures_do_not_pass_the_ingress() -> None:
    (ingress,) = _of("Ingress")
    (rule,) = ingress["spec"]["rules"]
    backends = {path["path"]: path["backend"]["service"]["name"] for path in rule["http"]["paths"]}
    assert backends == {"/metrics": "recoquest-nothing", "/": "recoquest"}
