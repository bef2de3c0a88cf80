"""The tables of GLUE as its archive has them, and what is left out of broken ones."""

from pathlib import Path

import pytest

from training.classification.texts.glue import Example, read_glue
from training.classification.texts.tasks import GLUE
from training.common.errors import DataError

FILES = {
    "cola": "gj04\t1\t\tOur friends won't buy this analysis.\ngj04\t0\t*\tThe more we study verbs.\n",
    "sst-2": "sentence\tlabel\nhide new secretions \t0\ncontains no wit \t1\n",
    "mrpc": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    '0\t7\t8\tAmrozi said "he".\tReferring to him.\n1\t7\t8\tone "\ttwo\n',
    "qqp": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\tHow?\tWhy?\t0\n1\t2\t3\ta\tb\t1\n",
    "qnli": "index\tquestion\tsentence\tlabel\n0\tWhen?\tThen.\tnot_entailment\n1\tWho?\tShe.\tentailment\n",
    "mnli": "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
    "sentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label\n"
    "0\t1\t1n\tx\t(\t(\t(\t(\tOne.\tTwo.\tneutral\tcontradiction\n"
    "0\t1\t1n\tx\t(\t(\t(\t(\tOne.\tTwo.\tneutral\tentailment\n",
    "rte": "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tnot_entailment\n1\ta\tb\tentailment\n",
    "wnli": "index\tsentence1\tsentence2\tlabel\n0\ta\tb\t0\n1\ta\tb\t1\n",
    "sts-b": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
    "0\tg\tf\t2012\t1\tn\tn\tA plane.\tAn air plane.\t5.000\n0\tg\tf\t2012\t1\tn\tn\ta\tb\t1.25\n",
}
LABELS = {"sts-b": [5.0, 1.25], "cola": [1.0, 0.0]}


def write(folder: Path, content: str | bytes, name: str = "train") -> Path:
    encoded = content.encode() if isinstance(content, str) else content
    (folder / f"{name}.tsv").write_bytes(encoded)
    return folder


@pytest.mark.parametrize("name", sorted(GLUE))
def test_reads_every_task_as_published(tmp_path: Path, name: str) -> None:
    table = read_glue(write(tmp_path, FILES[name]), "train", GLUE[name])
    assert [example.label for example in table.items] == LABELS.get(name, [0.0, 1.0])
    assert all((example.second is None) == (name in {"cola", "sst-2"}) for example in table.items)
    assert table.rejections.items == ()


def test_quotes_are_letters_and_only_tabs_and_line_feeds_divide(tmp_path: Path) -> None:
    table = read_glue(write(tmp_path, FILES["mrpc"]), "train", GLUE["mrpc"])
    assert table.items[0] == Example('Amrozi said "he".', "Referring to him.", 0.0)
    assert table.items[1].first == 'one "'
    odd = "sentence\tlabel\none\u2028line \x0b with\x85 all\t1\n"
    table = read_glue(write(tmp_path, odd), "train", GLUE["sst-2"])
    assert table.items == (Example("one\u2028line \x0b with\x85 all", None, 1.0),)


def test_windows_line_ends_and_a_missing_last_one(tmp_path: Path) -> None:
    table = read_glue(write(tmp_path, "sentence\tlabel\r\ngood\t1\r\nbad\t0"), "train", GLUE["sst-2"])
    assert [(e.first, e.label) for e in table.items] == [("good", 1.0), ("bad", 0.0)]


def test_broken_lines_are_named_by_number(tmp_path: Path) -> None:
    lines = [b"good\t1", b"good", b"good\t1\t1", b"", b"good\t2", b" \t1", b"\xff\xfe\t1", b"bad\t0"]
    folder = write(tmp_path, b"sentence\tlabel\n" + b"\n".join(lines) + b"\n")
    table = read_glue(folder, "train", GLUE["sst-2"], max_rejected=0.9)
    assert [example.label for example in table.items] == [1.0, 0.0]
    assert [item.line for item in table.rejections.items] == [3, 4, 5, 6, 7, 8]
    reasons = [item.reason for item in table.rejections.items]
    assert "1 values, not 2" in reasons[0]
    assert "3 values, not 2" in reasons[1]
    assert "'2' is none of 0, 1" in reasons[3]
    assert reasons[4] == "sentence is empty"
    assert "UTF-8" in reasons[5]


@pytest.mark.parametrize("score", ["nan", "inf", "", "five"])
def test_a_score_is_a_number(tmp_path: Path, score: str) -> None:
    content = FILES["sts-b"] + f"0\tg\tf\t2012\t1\tn\tn\ta\tb\t{score}\n"
    table = read_glue(write(tmp_path, content), "train", GLUE["sts-b"], max_rejected=0.5)
    assert [item.line for item in table.rejections.items] == [4]


def test_too_many_broken_lines_stop(tmp_path: Path) -> None:
    folder = write(tmp_path, "sentence\tlabel\ngood\t1\ngood\tx\n")
    with pytest.raises(DataError, match=r"[Ll]ine 3"):
        read_glue(folder, "train", GLUE["sst-2"], max_rejected=0.1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text\tlabel\ngood\t1\n", "no column 'sentence'"),
        ("", "no column"),
        ("sentence\tlabel\n", "no line that can be used"),
    ],
)
def test_files_of_another_kind_are_refused(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_glue(write(tmp_path, content), "train", GLUE["sst-2"])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"dev\.tsv cannot be read"):
        read_glue(tmp_path, "dev", GLUE["rte"])
