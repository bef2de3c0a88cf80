"""`recoquest findings`: what it prints."""

import json
from pathlib import Path

import pytest
from typer.testing import Result

from tests.app.commands import run_command, said
from training.clinical.findings import CHEXPERT_LABELS, FINDINGS


def _run(*arguments: object) -> Result:
    return run_command("findings", *arguments)


def test_findings_of_a_text_are_printed_for_people_and_for_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    shown = _run("No effusion[bold]. Possible mass.")
    for part in ("pleural effusion", "absent", "3 to 11", "uncertain"):
        assert part in shown.output
    printed = _run("No effusion.", "--json")
    assert json.loads(printed.stdout) == [
        {"finding": "pleural effusion", "state": "absent", "start": 3, "end": 11, "prior": False}
    ]


def test_a_report_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "report.txt"
    file.write_text("Œdème? No oedema.", encoding="utf-8")
    printed = _run("--file", file, "--json")
    assert json.loads(printed.stdout) == [
        {"finding": "pulmonary edema", "state": "absent", "start": 10, "end": 16, "prior": False}
    ]


def test_without_a_text_all_findings_are_listed() -> None:
    assert _run().stdout.split("\n") == [*FINDINGS, ""]


def test_a_text_that_states_nothing_says_so() -> None:
    assert "`recoquest findings` lists it" in _run("Two dogs.").stdout
    assert json.loads(_run("Two dogs.", "--json").stdout) == []


def test_a_text_in_another_language_is_said_to_be_one() -> None:
    assert "neither English nor German" in _run("Sin pneumothorax ni derrame.").stdout
    assert json.loads(_run("Sin pneumothorax ni derrame.", "--json").stdout) == []


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (None, (), "cannot be read: No such file"),
        (b"\xff\xfe", (), "is not text in UTF-8"),
        (b"Mass.", ("Mass.",), "a text or a file, not both"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(
    tmp_path: Path, content: bytes | None, options: tuple[str, ...], message: str
) -> None:
    file = tmp_path / "report.txt"
    if content is not None:
        file.write_bytes(content)
    assert message in said(run_command("findings", *options, "--file", file, code=2 if options else 1))


def test_labels_of_chexpert_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    report = "No pneumothorax. Possible edema. Pacemaker."
    assert json.loads(_run(report, "--labels", "--json").stdout) == {
        "Edema": "uncertain",
        "Pneumothorax": "absent",
        "Support Devices": "present",
    }
    shown = _run(report, "--labels").stdout
    assert "No Finding" in shown
    assert "uncertain" in shown
    assert "it has no labels" in _run("Sin pneumothorax.", "--labels").stdout
    assert json.loads(_run("--labels", "--json").stdout) == list(CHEXPERT_LABELS)


def test_findings_of_a_comparison_are_marked() -> None:
    rows = json.loads(_run("The effusion is unchanged since the prior film. Cardiomegaly.", "--json").stdout)
    assert [(row["finding"], row["prior"]) for row in rows] == [
        ("pleural effusion", True),
        ("cardiomegaly", False),
    ]


def test_words_that_are_not_understood_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    for options in ((), ("--labels",)):
        shown = _run("No PTX. Blorf at the left apex.", *options).stdout
        assert "Not understood: Blorf." in shown
        assert "Not understood" not in _run("No PTX. The lungs are clear.", *options).stdout
    assert "Not understood" not in _run("Blorf.", "--json").stdout
