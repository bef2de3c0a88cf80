"""`recoquest feedback`, as a user types it."""

import json
from pathlib import Path

import pytest

from tests.app.commands import indexed_work, refusal
from tests.e2e.work import Work


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return indexed_work(tmp_path, "c")


def test_judgements_are_given_counted_exported_and_forgotten(work: Work) -> None:
    output = work.run("feedback", "add", "c", "image-003", "--text", "größer", "--relevant").stdout
    assert output == "c: image-003 is kept as relevant.\n"
    work.run("feedback", "add", "c", "image-004", "--like", "image-001", "--not-relevant")
    work.run("feedback", "add", "c", "image-003", "--text", "größer", "--not-relevant")
    listed = work.run("feedback", "list").stdout
    assert [cell.strip() for cell in listed.splitlines()[3].split("│")[1:5]] == ["c", "0", "2", "2"]
    work.run("feedback", "export", "c", "said.jsonl")
    lines = [json.loads(line) for line in (work.folder / "said.jsonl").read_text().splitlines()]
    assert [(line["query"], line["image"], line["relevant"]) for line in lines] == [
        ({"images": ["image-001"]}, "image-004", False),
        ({"texts": ["größer"]}, "image-003", False),
    ]
    assert "größer" in (work.folder / "said.jsonl").read_text(encoding="utf-8")
    printed = work.run("feedback", "export", "c", "-")
    assert printed.stdout == (work.folder / "said.jsonl").read_text(encoding="utf-8")
    assert printed.stderr == "Wrote 2 judgements to -.\n"
    assert not (work.folder / "-").exists()
    taken_back = ("feedback", "remove", "c", "image-004", "--like", "image-001")
    nothing = "c: there was no judgement of image-004 for this query.\n"
    assert work.run("feedback", "remove", "c", "image-004", "--text", "größer").stdout == nothing
    assert work.run(*taken_back).stdout == "c: the judgement of image-004 for this query is removed.\n"
    assert work.run(*taken_back).stdout == nothing
    work.run("feedback", "export", "c", "said.jsonl")
    (kept,) = (work.folder / "said.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(kept)["image"] == "image-003"
    assert "1 judgements" in work.run("feedback", "clear", "c").stdout
    assert work.run("feedback", "clear", "c").stdout == "c: 0 judgements are forgotten.\n"
    trail = [json.loads(line) for line in work.run("audit", "export", "-").stdout.splitlines()]
    details = [one["details"] for one in trail if one["details"]["operation"] != "index"]
    assert details[1] == {"operation": "feedback", "relevant": False, "missed": False}
    assert details[3] == {"operation": "feedback export", "count": 2}
    assert details[-2:] == [{"operation": "feedback clear", "count": count} for count in (1, 0)]


def test_mistakes_are_one_sentence(work: Work) -> None:
    for arguments, message in (
        (("c", "image-003", "--relevant"), "Give the text or the liked images"),
        (("c", "image-099", "--text", "x", "--relevant"), "has no image 'image-099'"),
        (("other", "image-003", "--text", "x", "--relevant"), "no collection 'other'"),
    ):
        assert message in refusal(work, "feedback", "add", *arguments)
    unknown = ("feedback", "remove", "c", "image-099", "--text", "x")
    assert "has no image 'image-099'" in refusal(work, *unknown)
    empty = work.run("feedback", "add", "c", "image-003", "--text", "\u200b", "--relevant", code=2)
    assert "cannot be judged" in empty.stderr
    assert "--relevant" in work.run("feedback", "add", "c", "image-003", "--text", "x", code=2).stderr
    work.run("feedback", "export", "other", "said.jsonl", code=1)
    assert not (work.folder / "said.jsonl").exists()
