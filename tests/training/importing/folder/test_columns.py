"""Columns of tables by their names."""

from pathlib import Path

import pytest

from training.common.errors import DataError
from training.common.tables.table import open_table
from training.importing.folder.columns import Columns, is_known_column, read_columns


def columns_of(folder: Path, header: str) -> Columns:
    path = folder / "t.csv"
    path.write_text(f"{header}\n")
    return read_columns(open_table(path, is_known_column))


def test_names_without_regard_to_case_and_outer_spaces(tmp_path: Path) -> None:
    columns = columns_of(tmp_path, "Image , TEXT, Split,place ")
    assert columns.places == {"image": 0, "text": 1, "split": 2}
    assert columns.metadata == {3: "place"}
    assert columns.notes == ()


def test_synonyms_are_said_in_one_line(tmp_path: Path) -> None:
    columns = columns_of(tmp_path, "File Name;Caption;label;patient_id;subset;report")
    assert columns.places == {"image": 0, "text": 1, "labels": 2, "group": 3, "split": 4, "report": 5}
    assert columns.notes == (
        "Took columns 'File Name' for image, 'Caption' for text, 'label' for labels, 'subset' for split and "
        "'patient_id' for group.",
    )


def test_german_names(tmp_path: Path) -> None:
    columns = columns_of(tmp_path, "Dateiname;Beschreibung;Befund;Patienten-ID;Alter")
    assert columns.places == {"image": 0, "text": 1, "report": 2, "group": 3}
    assert columns.metadata == {4: "Alter"}


def test_a_name_goes_before_its_synonyms(tmp_path: Path) -> None:
    columns = columns_of(tmp_path, "path,caption,image,text")
    assert columns.places == {"image": 2, "text": 3}
    assert columns.metadata == {0: "path", 1: "caption"}
    assert columns.notes == ("Took 'path' and 'caption' for metadata, beside the columns above.",)


def test_a_table_without_texts_is_said_to_be_one(tmp_path: Path) -> None:
    columns = columns_of(tmp_path, "image,age,place")
    assert columns.notes == (
        f"{tmp_path / 't.csv'} has no column of texts, such as 'text', 'caption' or 'report'; "
        "its other columns are 'age' and 'place': rename one to 'text' or 'report'.",
    )


def test_a_table_without_images_names_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"no column 'image'.*its first line has 'Nummer', 'Text'.*Name the column"
    ):
        columns_of(tmp_path, "Nummer;Text")


def test_columns_without_a_name(tmp_path: Path) -> None:
    columns = columns_of(tmp_path, ",image,text,")
    assert columns.unnamed == (0, 3)
    assert columns.metadata == {}


@pytest.mark.parametrize(
    ("header", "places"),
    [
        ("Bildname;Beurteilung;Schlagw\xf6rter", {"image": 0, "report": 1, "labels": 2}),
        ("Foto;Diagnose", {"image": 0, "report": 1}),
        ("Bildname;Befundtext", {"image": 0, "report": 1}),
        ("Bild;Befund;Beurteilung;Diagnose", {"image": 0, "findings": 1, "impression": 2}),
        ("image,findings,impression", {"image": 0, "findings": 1, "impression": 2}),
        ("image,report,findings", {"image": 0, "report": 1, "findings": 2}),
        ("image,prompt", {"image": 0, "text": 1}),
        ("image,alt,title", {"image": 0, "text": 1}),
        ("image,title,description", {"image": 0, "text": 2}),
        ("Nom du fichier;L\xe9gende;Mots-cl\xe9s", {"image": 0, "text": 1, "labels": 2}),
        ("fichier;compte rendu", {"image": 0, "report": 1}),
        ("Archivo;Descripci\xf3n;Palabras clave", {"image": 0, "text": 1, "labels": 2}),
        ("imagen;hallazgos;impresi\xf3n", {"image": 0, "findings": 1, "impression": 2}),
        ("immagine;didascalia;etichette", {"image": 0, "text": 1, "labels": 2}),
        ("immagine;referto", {"image": 0, "report": 1}),
        ("afbeelding;bijschrift;trefwoorden", {"image": 0, "text": 1, "labels": 2}),
        ("bestandsnaam;bevindingen;conclusie", {"image": 0, "findings": 1, "impression": 2}),
    ],
)
def test_names_in_other_languages_and_trades(tmp_path: Path, header: str, places: dict[str, int]) -> None:
    assert columns_of(tmp_path, header).places == places


@pytest.mark.parametrize(
    "names", ["caption1,caption2,caption3", "caption_1,caption_2,caption_3", "Caption 1,Caption 2,Caption 3"]
)
def test_texts_beside_one_another(tmp_path: Path, names: str) -> None:
    columns = columns_of(tmp_path, f"image,{names},place")
    assert columns.texts == (1, 2, 3)
    assert columns.metadata == {4: "place"}
    one, two, three = map(repr, names.split(","))
    assert columns.notes == (f"Took columns {one}, {two} and {three} for text.",)


def test_texts_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    assert columns_of(tmp_path, "image,caption10,caption2,caption").texts == (3, 2, 1)
    assert columns_of(tmp_path, "image,text,caption1").texts == (1,)
    assert columns_of(tmp_path, "image,place1,place2").texts == ()


@pytest.mark.parametrize(
    ("header", "places"),
    [
        (
            "ファイル名,説明,所見,診断,患者ID",
            {"image": 0, "text": 1, "findings": 2, "impression": 3, "group": 4},
        ),
        ("画像,レポート,年齢", {"image": 0, "report": 1}),
        ("图像,描述,标签", {"image": 0, "text": 1, "labels": 2}),
        ("文件名,报告", {"image": 0, "report": 1}),
        ("影像,影像所见,诊断意见", {"image": 0, "findings": 1, "impression": 2}),
        ("파일명,설명,소견,결론", {"image": 0, "text": 1, "findings": 2, "impression": 3}),
        ("이미지;판독문", {"image": 0, "report": 1}),
        ("plik;opis;Wnioski", {"image": 0, "text": 1, "report": 2}),
        ("Zdjęcie;Opis badania", {"image": 0, "report": 1}),
        ("Файл;Описание;Заключение", {"image": 0, "text": 1, "report": 2}),
        ("Имя файла;Протокол;Пациент", {"image": 0, "report": 1, "group": 2}),
        ("arquivo;descrição;laudo", {"image": 0, "text": 1, "report": 2}),
        ("Imagem;Achados;Impressão", {"image": 0, "findings": 1, "impression": 2}),
    ],
)
def test_names_in_other_scripts_and_languages(tmp_path: Path, header: str, places: dict[str, int]) -> None:
    assert columns_of(tmp_path, header).places == places
