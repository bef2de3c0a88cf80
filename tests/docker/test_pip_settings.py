import configparser
import runpy
from pathlib import Path

from tests.docker.dockerfile import ROOT

SETTINGS = runpy.run_path(str(ROOT / "docker" / "pip_settings.py"))
effective_settings = SETTINGS["effective_settings"]
local_paths = SETTINGS["local_paths"]
write_settings = SETTINGS["write_settings"]


def test_the_environment_goes_before_files_in_either_order() -> None:
    lines = [":env:.index-url='https://a.example/simple'", "global.index-url='https://b.example/simple'"]
    for listing in ("\n".join(lines), "\n".join(reversed(lines))):
        assert effective_settings(listing) == {"index-url": "https://a.example/simple"}


def test_settings_of_no_use_in_a_build_stay_behind() -> None:
    assert effective_settings("global.user='true'\nglobal.cache-dir='/c'\nglobal.retries='2'") == {
        "retries": "2"
    }


def test_local_folders_of_packages_are_found(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "index" / "simple").mkdir(parents=True)
    settings = {
        "find-links": f"{tmp_path}/wheels {tmp_path}/missing https://packages.example/links",
        "extra-index-url": f"file://{tmp_path}/index/simple https://packages.example/simple",
    }
    assert local_paths(settings) == [tmp_path / "index", tmp_path / "wheels"]


def test_a_folder_inside_another_is_not_mounted_twice(tmp_path: Path) -> None:
    (tmp_path / "index" / "simple").mkdir(parents=True)
    (tmp_path / "index" / "wheels").mkdir()
    settings = {
        "index-url": f"file://{tmp_path}/index/simple",
        "find-links": f"{tmp_path}/index/wheels",
    }
    assert local_paths(settings) == [tmp_path / "index"]


def test_the_file_holds_every_value_and_the_certificate_of_the_build(tmp_path: Path) -> None:
    listing = (
        "global.extra-index-url='https://a.example/simple\\nhttps://b.example/simple'\n"
        ":env:.cert='/certificates/ca.pem'\n"
    )
    (volume,) = write_settings(listing, tmp_path)
    written = configparser.RawConfigParser()
    written.read(tmp_path / "pip.conf")
    indexes = written["global"]["extra-index-url"].split()
    assert indexes == ["https://a.example/simple", "https://b.example/simple"]
    assert volume == f"/certificates/ca.pem:{written['global']['cert']}:ro"


def test_a_machine_without_settings_gets_a_file_that_pip_accepts(tmp_path: Path) -> None:
    assert write_settings("", tmp_path) == []
    assert (tmp_path / "pip.conf").read_text("utf-8") == "[global]\n"
