"""Chest radiographs as published: CheXpert and CheXpert Plus, ChestX-ray14, PadChest, Indiana University."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final
from xml.etree import ElementTree

from training.clinical.text.report_text import Report, make_report
from training.clinical.text.sentences import report_sentences
from training.common.errors import DataError
from training.common.record import LineError, MetadataValue, Record, Split
from training.common.rejections import LeftOut, Rejection
from training.common.tables import (
    count_rows,
    find_table,
    need_table,
    read_records,
    read_rows,
    read_table,
)
from training.common.values import age_in_years, parse_list
from training.importing.files import ImageFiles, image_paths
from training.importing.layouts import Layout, Source
from training.importing.listing import Listing
from training.importing.splits import SPLITS, draw_split

_SEXES: Final = {"Male": "M", "Female": "F"}

_CHEXPERT: Final = ("Path", "Sex", "Age", "Frontal/Lateral", "AP/PA")
# Patient, study and file.
_BELOW_PATIENTS: Final = 3
_POSITIVE: Final = frozenset({"1", "1.0"})

_CHEXPERT_PLUS: Final = ("path_to_image", "section_findings", "section_impression", "split")
# Folders of unpacked archives of images; the table names .jpg files, the archives also have .png.
_FOLDERS: Final = ("", "PNG", "PNG/PNG", "images")
_SPLIT_FOLDERS: Final = ("train", "valid", "test")
_SUFFIXES: Final = (".jpg", ".png")
_CHEXBERT: Final = ("chexbert_labels/report_fixed.json", "report_fixed.json")
_PATIENT: Final = ("race", "ethnicity", "interpreter_needed", "insurance_type", "deceased")

_NIH_TABLES: Final = ("Data_Entry_2017_v2020", "Data_Entry_2017", "sample_labels")
_NIH: Final = ("Image Index", "Finding Labels", "Patient ID", "Patient Age", "View Position")
_NIH_LISTS: Final = ("train_val_list", "test_list")
# The published list trains and validates; a tenth of its patients validate.
_TRAIN_VAL: Final[tuple[Split, ...]] = ("val", *("train",) * 9)

_PADCHEST: Final = ("ImageID", "ImageDir", "StudyID", "PatientID", "Report", "Labels")
_PADCHEST_VIEWS: Final = {"L": "LATERAL", "POSTEROANTERIOR": "PA", "ANTEROPOSTERIOR": "AP", "UNK": ""}
_LONGEST_LIST: Final = 20_000

_IU_REPORTS: Final = "indiana_reports"
_IU_PROJECTIONS: Final = "indiana_projections"
_IU: Final = ("uid", "filename", "projection")
_OPEN_I: Final = ("ecgen-radiology", "NLMCXR_reports/ecgen-radiology", "NLMCXR_reports", "")
_OPEN_I_SUFFIXES: Final = (".png", ".jpg", ".dcm.png", "")
_LARGEST_XML: Final = 1 << 20


def list_chexpert(source: Source) -> Listing:
    """Find CheXpert's train.csv, and valid.csv if it is there; uncertain labels, -1, are none.

    Images are in the folder CheXpert-v1.0-small or one that has it. All images of the patients that
    `leave_out` names in its column Path, such as the candidates of CheXpert 8x200, are left out of train.
    """
    tables: dict[Split, Path] = {"train": need_table(source.path, "train")}
    if (valid := find_table(source.path, "valid")) is not None:
        tables["val"] = valid
    root, left_out = source.images or source.path, _patients_of(source.leave_out)

    def records(split: Split, table: Path) -> Iterator[Record | Rejection | LeftOut]:
        def record(row: Mapping[str, str]) -> Record | LeftOut:
            path = _chexpert_path(row, root)
            if not _is_of_patient(path):
                raise LineError(f"the path {row['Path']!r} is not .../patientN/studyN/file")
            if split == "train" and path.parts[-3] in left_out:
                return LeftOut(f"images of patients that {source.leave_out} names")
            return Record(
                id="-".join((*path.parts[-3:-1], path.stem)),
                image=path.as_posix(),
                split=split,
                group=path.parts[-3],
                labels=tuple(
                    name for name, value in row.items() if name not in _CHEXPERT and value in _POSITIVE
                ),
                metadata=_known(
                    view="LATERAL" if row["Frontal/Lateral"] == "Lateral" else row["AP/PA"],
                    sex=_SEXES.get(row["Sex"]),
                    age=age_in_years(row["Age"]),
                ),
                table=table.name,
            )

        return read_records(table, _CHEXPERT, record, table.name)

    items = (item for split, table in tables.items() for item in records(split, table))
    total = sum(count_rows(table, _CHEXPERT) for table in tables.values())
    files = image_paths(
        root, [folder for table in tables.values() for folder in _patients_folder(table, root)]
    )
    return Listing(source.path, root, total, items, files=files)


CHEXPERT: Final = Layout(
    "chexpert", "CheXpert's train.csv and valid.csv", list_chexpert, frozenset({"images", "leave_out"})
)


def _patients_folder(table: Path, images: Path) -> Iterator[str]:
    """The folder of the patients of a table, as the first path of it says."""
    for item in read_rows(table, _CHEXPERT):
        if isinstance(item, tuple) and _is_of_patient(path := _chexpert_path(item[1], images)):
            yield "/".join(path.parts[:-_BELOW_PATIENTS])
            return


def _chexpert_path(row: Mapping[str, str], images: Path) -> PurePosixPath:
    path = PurePosixPath(row["Path"].strip().replace("\\", "/"))
    # The tables' paths begin with the name of the data set's folder, which may be `images` itself.
    if len(path.parts) > _BELOW_PATIENTS and not (images / path.parts[0]).is_dir():
        return path.relative_to(path.parts[0])
    return path


def _is_of_patient(path: PurePosixPath, least: int = _BELOW_PATIENTS) -> bool:
    return len(path.parts) >= least and path.parts[-3].startswith("patient")


def _patients_of(table: Path | None) -> frozenset[str]:
    """The patients that a table names by paths in its column Path."""
    rows = () if table is None else read_table(table, ("Path",))
    paths = (PurePosixPath(row["Path"]) for _, row in rows)
    return frozenset(path.parts[-3] for path in paths if len(path.parts) >= _BELOW_PATIENTS)


def list_chexpert_plus(source: Source) -> Listing:
    """Find df_chexpert_plus_*.csv, and its folders train and valid of images there, in PNG or in `images`.

    Labels are those that CheXbert gave the whole report, marked 1, if chexbert_labels/report_fixed.json is
    there. Patients that `leave_out` names in its column Path are left out of train.
    """
    tables = sorted(source.path.glob("df_chexpert_plus_*.csv*"))
    if not tables:
        raise DataError(f"There is no df_chexpert_plus_240401.csv in {source.path}.")
    root, left_out = source.images or source.path, _patients_of(source.leave_out)
    labels = _chexbert_labels(source.path)
    folders = [(folder, suffix) for folder in _FOLDERS for suffix in _SUFFIXES]

    def file_of(path: PurePosixPath) -> str:
        """The path of the file that is there, else of where it should be; the last folder is tried first."""
        for number, (folder, suffix) in enumerate(folders):
            inside = (PurePosixPath(folder) / path.with_suffix(suffix)).as_posix()
            if (root / inside).is_file():
                folders.insert(0, folders.pop(number))
                return inside
        return path.as_posix()

    def record(row: Mapping[str, str]) -> Record | LeftOut:
        path = PurePosixPath(row["path_to_image"].strip().replace("\\", "/"))
        split = SPLITS.get(row["split"].strip().lower())
        if not _is_of_patient(path, least=1 + _BELOW_PATIENTS):
            raise LineError(f"the path {row['path_to_image']!r} is not .../patientN/studyN/file")
        if split is None:
            raise LineError(f"the split {row['split']!r} is neither train nor valid")
        if split == "train" and path.parts[-3] in left_out:
            return LeftOut(f"images of patients that {source.leave_out} names")
        known = {name: value.strip() for name, value in row.items()}
        report = make_report(
            {"FINDINGS": row["section_findings"], "IMPRESSION": row["section_impression"]},
            row.get("section_narrative", "") or row.get("section_summary", ""),
        )
        order = known.get("patient_report_date_order", "")
        lateral = known.get("frontal_lateral", "").lower() == "lateral"
        return Record(
            id="-".join((*path.parts[-3:-1], path.stem)),
            image=file_of(path),
            split=split,
            texts=report.sentences,
            group=path.parts[-3],
            labels=labels.get(path.with_suffix("").as_posix(), ()),
            report=report.text,
            metadata=_known(
                study=path.parts[-2],
                view="LATERAL" if lateral else known.get("ap_pa"),
                sex=_SEXES.get(known.get("sex", "")),
                age=age_in_years(known.get("age", "")),
                **{name: known.get(name) for name in _PATIENT},
                report_order=int(order) if order.isdigit() else None,
            ),
        )

    files = image_paths(
        root, [f"{folder}/{split}".strip("/") for folder in _FOLDERS for split in _SPLIT_FOLDERS]
    )
    return _listing(tables[-1], root, _CHEXPERT_PLUS, record, files)


CHEXPERT_PLUS: Final = Layout(
    "chexpert-plus",
    "CheXpert Plus, df_chexpert_plus_*.csv",
    list_chexpert_plus,
    frozenset({"images", "leave_out"}),
)


def _chexbert_labels(source: Path) -> dict[str, tuple[str, ...]]:
    """Labels by path without its ending; none where the file is not there."""
    path = next((source / name for name in _CHEXBERT if (source / name).is_file()), None)
    if path is None:
        return {}
    try:
        with path.open(encoding="utf-8") as lines:
            entries = [json.loads(line) for line in lines if line.strip()]
        labels: dict[str, tuple[str, ...]] = {}
        for entry in entries:
            image = PurePosixPath(entry["path_to_image"]).with_suffix("").as_posix()
            own = tuple(name for name, value in entry.items() if name != "path_to_image" and value == 1)
            if labels.setdefault(image, own) != own:
                raise ValueError(f"{image} has two lines that differ")
        return labels
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path} cannot be read as one JSON object a line with a path_to_image: {error}."
        ) from error


def list_nih_cxr14(source: Source) -> Listing:
    """Find Data_Entry_2017.csv and the lists of both splits, and the images anywhere below."""
    table = next((path for name in _NIH_TABLES if (path := find_table(source.path, name))), None)
    if table is None:
        raise DataError(f"There is no Data_Entry_2017.csv or Data_Entry_2017_v2020.csv in {source.path}.")
    published = _nih_lists(source.path)
    files = ImageFiles(source.images or source.path)

    def record(row: Mapping[str, str]) -> Record:
        name, patient = row["Image Index"].strip(), row["Patient ID"].strip()
        image, split = files.need(name), None
        if not patient:
            raise LineError("the Patient ID is missing")
        if published is not None:
            if name not in published:
                raise LineError(f"{name!r} is neither in train_val_list.txt nor in test_list.txt")
            split = "test" if published[name] == "test_list" else draw_split(patient, _TRAIN_VAL)
        follow_up = row.get("Follow-up #", "").strip()
        return Record(
            id=Path(name).stem,
            image=image,
            split=split,
            group=patient,
            labels=_parts(row["Finding Labels"], "|"),
            metadata=_known(
                view=row["View Position"].strip(),
                sex=(row.get("Patient Gender") or row.get("Patient Sex") or "").strip(),
                age=age_in_years(row["Patient Age"]),
                follow_up=int(follow_up) if follow_up.isdigit() else None,
            ),
        )

    return _listing(table, files.folder, _NIH, record, files.paths)


NIH_CXR14: Final = Layout("nih-cxr14", "ChestX-ray14's Data_Entry_2017.csv", list_nih_cxr14)


def _nih_lists(source: Path) -> dict[str, str] | None:
    """The list that each image is on; None without lists."""
    paths = {name: source / f"{name}.txt" for name in _NIH_LISTS}
    missing = [path for path in paths.values() if not path.is_file()]
    if len(missing) == len(_NIH_LISTS):
        return None
    if missing:
        raise DataError(f"There is no {missing[0].name} in {source}, only the other list of the two.")
    try:
        listed = {name: set(path.read_text(encoding="utf-8").split()) for name, path in paths.items()}
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"The lists of the splits in {source} cannot be read: {error}.") from error
    train_val, test = listed.values()
    if both := train_val & test:
        raise DataError(f"{min(both)!r} is in train_val_list.txt and in test_list.txt; remove it from one.")
    return {image: name for name, images in listed.items() for image in images}


def list_padchest(source: Source) -> Listing:
    """Find PADCHEST_*.csv, also with .gz, and the images anywhere below the source or `images`."""
    tables = sorted(path for path in source.path.glob("PADCHEST_*.csv*") if path.suffix in (".csv", ".gz"))
    if not tables:
        raise DataError(
            f"There is no PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv in {source.path}, nor another "
            "PADCHEST_*.csv."
        )
    files = ImageFiles(source.images or source.path)

    def record(row: Mapping[str, str]) -> Record:
        known = {name: value.strip() for name, value in row.items()}
        image = files.need(known["ImageID"], known["ImageDir"].removesuffix(".0"))
        if not known["PatientID"]:
            raise LineError("the PatientID is missing")
        labels = parse_list(known["Labels"] or "[]") if len(row["Labels"]) <= _LONGEST_LIST else None
        if labels is None:
            raise LineError(f"the labels {row['Labels'][:80]!r} are not a list of texts in brackets")
        written = (known.get(name, "") for name in ("Projection", "ViewPosition_DICOM"))
        birth, taken = known.get("PatientBirth", "").removesuffix(".0"), known.get("StudyDate_DICOM", "")[:4]
        is_aged = birth.isdigit() and taken.isdigit() and int(taken) >= int(birth)
        sex = known.get("PatientSex_DICOM")
        return Record(
            id=Path(known["ImageID"]).stem,
            image=image,
            texts=report_sentences([known["Report"].replace(" .", ".")]),
            group=known["PatientID"],
            labels=tuple(dict.fromkeys(filter(None, map(str.strip, labels)))),
            report=known["Report"] or None,
            metadata=_known(
                study=known["StudyID"],
                view=next(filter(None, (_PADCHEST_VIEWS.get(name, name) for name in written)), None),
                sex=sex if sex in ("M", "F") else None,
                birth_year=int(birth) if birth.isdigit() else None,
                age=int(taken) - int(birth) if is_aged else None,
                labelled_by=known.get("MethodLabel"),
            ),
        )

    return _listing(tables[0], files.folder, _PADCHEST, record, files.paths)


PADCHEST: Final = Layout("padchest", "PadChest's PADCHEST_*.csv", list_padchest)


@dataclass(frozen=True)
class _Study:
    """A study of Indiana University; Open-i names its images."""

    report: Report
    labels: tuple[str, ...]
    mesh: tuple[str, ...]
    uid: str = ""
    images: tuple[str, ...] = ()

    def record(self, name: str, uid: str, image: str, view: str = "") -> Record:
        return Record(
            id=name,
            image=image,
            texts=self.report.sentences,
            group=uid,
            labels=self.labels,
            report=self.report.text,
            metadata=_known(view=view.upper(), mesh=self.mesh),
        )


def list_iu_xray(source: Source) -> Listing:
    """Find Kaggle's tables or Open-i's XML files, and the images anywhere below the source or `images`."""
    path, files = source.path, ImageFiles(source.images or source.path)
    if find_table(path, _IU_REPORTS) is None and find_table(path, _IU_PROJECTIONS) is None:
        folders = (path / name for name in _OPEN_I)
        folder = next((folder for folder in folders if any(folder.glob("*.xml"))), None)
        if folder is None:
            raise DataError(
                f"There is no {_IU_REPORTS}.csv (Kaggle) in {path}, and no folder ecgen-radiology of XML "
                "files (Open-i)."
            )
        return _list_open_i(folder, files)
    reports, table = need_table(path, _IU_REPORTS), need_table(path, _IU_PROJECTIONS)
    studies = {
        row["uid"].strip(): _Study(
            make_report({"FINDINGS": row["findings"], "IMPRESSION": row["impression"]}),
            _parts(row.get("Problems", ""), ";"),
            _parts(row.get("MeSH", ""), ";"),
        )
        for _, row in read_table(reports, ("uid", "findings", "impression"), "uid")
    }

    def record(row: Mapping[str, str]) -> Record:
        name, uid = row["filename"].strip(), row["uid"].strip()
        image = files.need(name)
        if uid not in studies:
            raise LineError(f"{_IU_REPORTS}.csv has no report {uid!r}")
        own = name.removesuffix(".png").removesuffix(".dcm")
        return studies[uid].record(own, uid, image, row["projection"].strip())

    listing = _listing(table, files.folder, _IU, record, files.paths)
    alone = len(studies.keys() - {row["uid"].strip() for _, row in read_table(table, _IU)})
    left_out = {f"reports of {reports.name} without an image": alone} if alone else {}
    return replace(listing, left_out=left_out)


IU_XRAY: Final = Layout("iu-xray", "Indiana University's radiographs, of Kaggle or Open-i", list_iu_xray)


def _list_open_i(folder: Path, files: ImageFiles) -> Listing:
    """List the images that XML files, one a report, name as parentImage."""
    paths = sorted(folder.glob("*.xml"), key=lambda path: (len(path.name), path.name))
    read = [(path, _open_i_study(path)) for path in paths]
    alone = sum(isinstance(study, _Study) and not study.images for _, study in read)
    total = sum(len(study.images) if isinstance(study, _Study) else 1 for _, study in read)
    if not any(isinstance(study, _Study) and study.images for _, study in read):
        raise DataError(f"None of the XML files in {folder} names an image as parentImage; is it Open-i's?")

    def items() -> Iterator[Record | Rejection]:
        number = 0
        for path, study in read:
            for name in study.images if isinstance(study, _Study) else ("",):
                number += 1
                if isinstance(study, str):
                    yield Rejection(number, study, path.name)
                    continue
                try:
                    names = [name + suffix for suffix in _OPEN_I_SUFFIXES]
                    image = files.need(next((own for own in names if own in files.by_name), names[0]))
                except LineError as error:
                    yield Rejection(number, str(error), path.name)
                else:
                    yield replace(study.record(name, study.uid, image), line=number, table=path.name)

    left_out = {"reports without an image": alone} if alone else {}
    return Listing(folder, files.folder, total, items(), "image", left_out, files=files.paths)


def _open_i_study(path: Path) -> _Study | str:
    """The study of a file, or why it cannot be used."""
    try:
        if path.stat().st_size > _LARGEST_XML:
            return f"it has over {_LARGEST_XML >> 20} MiB"
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as error:
        return f"it cannot be read as XML: {error}"
    sections: dict[str, str] = {}
    for node in root.iter("AbstractText"):
        label = (node.get("Label") or "").upper()
        sections[label] = f"{sections.get(label, '')} {''.join(node.itertext())}".strip()
    terms = ("".join(node.itertext()).strip() for node in root.iter("major"))
    mesh = tuple(dict.fromkeys(filter(None, terms)))
    return _Study(
        make_report({name: sections.get(name, "") for name in ("FINDINGS", "IMPRESSION")}),
        labels=tuple(dict.fromkeys(term.split("/")[0].strip() for term in mesh)),
        mesh=mesh,
        uid=next((node.get("id") or "" for node in root.iter("uId") if node.get("id")), path.stem),
        images=tuple(dict.fromkeys(name for node in root.iter("parentImage") if (name := node.get("id")))),
    )


def _listing(
    table: Path,
    images: Path,
    columns: Sequence[str],
    record: Callable[[Mapping[str, str]], Record | LeftOut],
    files: Mapping[str, str],
) -> Listing:
    """The listing of a table with an image a row."""
    items = read_records(table, columns, record)
    return Listing(table, images, count_rows(table, columns), items, files=files)


def _known(**values: MetadataValue | None) -> dict[str, MetadataValue]:
    """The values that are neither None nor empty."""
    return {name: value for name, value in values.items() if value not in (None, "", ())}


def _parts(text: str, between: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, map(str.strip, text.split(between)))))
