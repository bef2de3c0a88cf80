"""`recoquest findings`: what it prints."""

import json
from pathlib import Path

import pytest

from tests.app.commands import run_command, said
from training.clinical.findings import CHEXPERT_LABELS, FINDINGS

REPORT = "No pneumothorax. Possible edema. Pacemaker."


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.parametrize(
    ("arguments", "told", "not_told"),
    [
        (["No effusion[bold]. Possible mass."], ["pleural effusion", "absent", "3 to 11", "uncertain"], []),
        (["Two dogs."], ["`recoquest findings` lists it"], []),
        (["Sin pneumothorax ni derrame."], ["neither English nor German"], []),
        ([REPORT, "--labels"], ["No Finding", "uncertain"], []),
        (["Sin pneumothorax.", "--labels"], ["it has no labels"], []),
        (["No PTX. Blorf at the left apex."], ["Not understood: Blorf."], []),
        (["No PTX. Blorf at the left apex.", "--labels"], ["Not understood: Blorf."], []),
        (["No PTX. The lungs are clear."], ["pneumothorax"], ["Not understood"]),
        (["No PTX. The lungs are clear.", "--labels"], ["Pneumothorax"], ["Not understood"]),
        (["Blorf.", "--json"], ["[]"], ["Not understood"]),
    ],
)
def test_findings_are_printed_for_people(arguments: list[str], told: list[str], not_told: list[str]) -> None:
    shown = run_command("findings", *arguments).stdout
    assert [part for part in told if part not in shown] == []
    assert [part for part in not_told if part in shown] == []


def _finding(finding: str, state: str, start: int, end: int, *, prior: bool = False) -> dict[str, object]:
    return {"finding": finding, "state": state, "start": start, "end": end, "prior": prior}


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["No effusion."], [_finding("pleural effusion", "absent", 3, 11)]),
        (["--file", "report.txt"], [_finding("pulmonary edema", "absent", 10, 16)]),
        (["Two dogs."], []),
        (["Sin pneumothorax ni derrame."], []),
        (
            ["The effusion is unchanged since the prior film. Cardiomegaly."],
            [
                _finding("pleural effusion", "present", 4, 12, prior=True),
                _finding("cardiomegaly", "present", 48, 60),
            ],
        ),
        (
            [REPORT, "--labels"],
            {"Edema": "uncertain", "Pneumothorax": "absent", "Support Devices": "present"},
        ),
        (["--labels"], list(CHEXPERT_LABELS)),
    ],
)
def test_findings_are_printed_for_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], found: object
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("report.txt").write_text("Œdème? No oedema.", encoding="utf-8")
    assert json.loads(run_command("findings", *arguments, "--json").stdout) == found


def test_without_a_text_all_findings_are_listed() -> None:
    assert run_command("findings").stdout.split("\n") == [*FINDINGS, ""]


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
