"""Roles of columns in tables and of fields in samples, by the names that people give them."""

from typing import Final, Literal

Role = Literal["image", "text", "report", "labels", "id", "split", "group", "order"]

# Of a table with several, the first is taken.
NAMES: Final[dict[Role, tuple[str, ...]]] = {
    "image": (
        *("image", "image_path", "image_file", "image_name", "image_filename", "image_file_name"),
        *("image_index", "file_path", "filepath", "path", "file_name", "filename", "file"),
        *("img", "img_path", "img_file", "img_name", "picture", "photo"),
        *("bild", "bilddatei", "dateiname", "datei", "dateipfad", "pfad"),
    ),
    "text": (
        *("text", "texts", "caption", "captions", "comment", "comments", "sentence", "sentences"),
        *("description", "descriptions", "image_caption", "caption_text", "raw_caption"),
        *("beschreibung", "bildbeschreibung", "bildunterschrift"),
    ),
    "report": (
        *("report", "reports", "report_text", "full_report", "radiology_report"),
        *("befund", "befundtext", "befundbericht", "bericht"),
    ),
    "labels": (
        *("labels", "label", "finding_labels", "class", "classes", "class_name", "category", "categories"),
    ),
    "id": ("id",),
    "split": ("split", "subset", "partition", "data_split"),
    "order": (
        *("comment_number", "comment_no", "caption_number", "caption_no", "caption_index", "caption_id"),
        *("sentence_number", "sentence_id", "sent_id", "sentid"),
    ),
    "group": ("group", "patient_id", "patientid", "patient", "subject_id", "patienten_id"),
}
