"""The whole way by the commands, then over HTTP from a service in a process of its own."""

import json
import shutil
import signal
import socket

import pytest

from tests.e2e.work import TINY, Work, service


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """Everything up to the index, each step by its command."""
    work = Work(tmp_path_factory.mktemp("work"))
    work.run("sample-data", "samples", "--images", 40)
    overrides = [part for setting in TINY for part in ("--set", setting)]
    trained = work.run("train", "demo-scenes", "--data", work.data, "--out", "run", *overrides)
    assert "Encoder: run/bundle" in trained.stdout
    indexed = work.run("index", "scenes", "--bundle", "run/bundle", "--data", work.data)
    assert "40 lines found = 40 taken (40 added, 0 updated, 0 unchanged) + 0 refused" in indexed.stdout
    return work


def test_evaluate_writes_its_report_and_pictures(work: Work) -> None:
    done = work.run(
        "evaluate", "run/bundle", "--data", work.data, "--json", "out/report.json", "--plots", "plots"
    )
    assert "RSUM" in done.stdout
    report = json.loads((work.folder / "out" / "report.json").read_text())
    test_records = [record for record in work.records if record.split == "test"]
    assert report["images"] == len(test_records)
    assert report["captions"]["texts"] == sum(len(record.texts) for record in test_records)
    assert sorted(path.name for path in (work.folder / "plots").iterdir()) == [
        "label-cosines.png",
        "text-image-cosines.png",
    ]


def test_indexing_again_doubles_nothing(work: Work) -> None:
    again = work.run("index", "scenes", "--bundle", "run/bundle", "--data", work.data)
    assert "40 lines found = 40 taken (0 added, 0 updated, 40 unchanged) + 0 refused" in again.stdout
    assert "40" in work.run("collections").stdout


def test_images_that_the_manifest_no_longer_has_are_told_and_removed(work: Work) -> None:
    data = work.folder / "shorter"
    shutil.copytree(work.data, data)
    command = ("index", "shorter", "--bundle", "run/bundle", "--data", data)
    work.run(*command)
    lines = (data / "manifest.jsonl").read_text().splitlines(keepends=True)
    (data / "manifest.jsonl").write_text("".join(lines[:33]))
    told = work.run(*command).stdout
    assert "33 lines found = 33 taken (0 added, 0 updated, 33 unchanged) + 0 refused" in told
    assert "In the collection and not in the manifest: 7 (" in told
    assert ", ...); --prune removes them." in told
    assert "Removed, since the manifest no longer has them: 7 (" in work.run(*command, "--prune").stdout
    assert "manifest" not in work.run(*command, "--prune").stdout
    train = work.run(*command, "--split", "train", "--prune").stdout
    count = sum(record.split == "train" for record in work.records[:33])
    assert f"33 lines found = {count} taken" in train
    assert f"+ {33 - count} left out (other splits)" in train


def test_images_that_were_left_out_are_named(work: Work) -> None:
    data = work.folder / "broken"
    shutil.copytree(work.data, data)
    for record in work.records[:6]:
        (data / record.image).write_bytes(b"no image")
    with (data / "manifest.jsonl").open("a") as manifest:
        manifest.write("{\n")
    command = ("index", "broken", "--bundle", "run/bundle", "--data", data, "--max-rejected")
    # 7 of 41 are 0.17.
    done = work.run(*command, 0.18)
    assert (
        "41 lines found = 34 taken (34 added, 0 updated, 0 unchanged) + 7 refused (lines: 1, images: 6)"
        in done.stdout
    )
    for line, record in enumerate(work.records[:6], 1):
        assert f"Line {line}: {record.image}: " in done.stderr
    assert "Line 41: it is not JSON" in done.stderr
    refused = work.run(*command, 0.16, code=1)
    assert "1 of 41 lines and 6 of 40 images up to here" in refused.stderr
    measured = work.run("evaluate", "run/bundle", "--data", data, "--split", "train", "--max-rejected", 0.5)
    train = [line for line, record in enumerate(work.records[:6], 1) if record.split == "train"]
    assert train
    assert all(f"Line {line}: " in measured.stderr for line in (*train, 41))


def test_an_image_finds_itself_and_its_likes_without_itself(work: Work) -> None:
    record = work.records[7]
    page = work.search("--image", work.data / record.image, "-k", 3)
    assert [hit["rank"] for hit in page["hits"]] == [1, 2, 3]
    assert page["hits"][0]["id"] == record.id
    assert page["hits"][0]["score"] == pytest.approx(1, abs=1e-3)
    likes = work.search("--like", record.id, "-k", 40)
    assert len(likes["hits"]) == 39
    assert record.id not in {hit["id"] for hit in likes["hits"]}


def test_a_table_for_people(work: Work) -> None:
    done = work.run("search", "scenes", "a dog in the snow", "-k", 2)
    assert "Rank" in done.stdout
    assert done.stdout.count("scene0") == 2


def test_mistakes_are_one_sentence(work: Work) -> None:
    for arguments in (
        ("search", "nothing", "a dog"),
        ("search", "scenes", "a dog", "--filter", '{"field": "nothing", "eq": 1}'),
        ("search", "scenes", "--like", "nobody"),
        ("search", "scenes", "--image", work.data / "manifest.jsonl"),
        ("train", "demo-scenes", "--data", work.data, "--out", "run"),
    ):
        done = work.run(*arguments, code=1)
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1, done.stderr


def test_the_service_answers_what_the_command_answers(work: Work) -> None:
    place = work.records[0].metadata["place"]
    condition = {"field": "place", "eq": place}
    passing = sum(record.metadata["place"] == place for record in work.records)
    text = "a white dog"
    asked = {"text": text, "keywords": text, "limit": passing + 5, "filter": condition}
    with service(work) as (client, process):
        answer = client.post("/v1/collections/scenes/search", json=asked)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        assert len(page["hits"]) == passing
        assert {hit["metadata"]["place"] for hit in page["hits"]} == {place}
        printed = work.search("a white dog", "-k", passing + 5, "--filter", json.dumps(condition))
        assert [hit["id"] for hit in printed["hits"]] == [hit["id"] for hit in page["hits"]]
        assert printed.keys() == page.keys()
        assert printed["served_by"] == page["served_by"]

        links = page["hits"][0]["links"]
        assert client.get(links["thumbnail"]).headers["content-type"] == "image/webp"
        problem = client.post("/v1/collections/nothing/search", json=asked)
        assert problem.status_code == 404
        assert problem.headers["content-type"] == "application/problem+json"
        assert "image-search" in client.get("/").text

        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130


def test_a_port_in_use_is_said_before_any_work(work: Work) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        for command in (("serve",), ("demo", "--folder", "never-made")):
            done = work.run(*command, "--port", port, code=1)
            assert f"Port {port} of 127.0.0.1 cannot be used" in done.stderr
    assert not (work.folder / "never-made").exists()
