"""Roles of columns in tables and of fields in samples, by the names that people give them."""

import re
import unicodedata
from typing import Final, Literal

Role = Literal["image", "text", "report", "findings", "impression", "labels", "id", "split", "group", "order"]

# In small letters without accents, as `normal_name` writes them; of a table with several, the first is taken.
NAMES: Final[dict[Role, tuple[str, ...]]] = {
    "image": (
        *("image", "image_path", "image_file", "image_name", "image_filename", "image_file_name"),
        *("image_index", "file_path", "filepath", "path", "file_name", "filename", "file"),
        *("img", "img_path", "img_file", "img_name", "picture", "photo", "image_url"),
        *("bild", "bilddatei", "bildname", "bildpfad", "dateiname", "datei", "dateipfad", "pfad", "foto"),
        *("fotodatei", "fotoname"),
        *("nom_de_fichier", "nom_du_fichier", "nom_fichier", "nom_image", "fichier", "chemin"),
        *("nombre_de_archivo", "nombre_archivo", "nombre_imagen", "archivo", "imagen", "ruta", "fichero"),
        *("nome_file", "nome_del_file", "nome_immagine", "immagine", "percorso"),
        *("bestandsnaam", "bestand", "afbeelding", "naam_afbeelding"),
    ),
    "text": (
        *("text", "texts", "caption", "captions", "comment", "comments", "sentence", "sentences"),
        *(
            "description",
            "descriptions",
            "image_caption",
            "caption_text",
            "raw_caption",
            "prompt",
            "alt_text",
        ),
        *("bildbeschreibung", "bildunterschrift", "beschreibung", "bildtext", "beschriftung", "kommentar"),
        *("description_de_l_image", "legende", "texte", "commentaire"),
        *("descripcion", "leyenda", "pie_de_foto", "texto", "comentario"),
        *("descrizione", "didascalia", "testo", "commento"),
        *("beschrijving", "bijschrift", "onderschrift", "tekst", "omschrijving"),
    ),
    "report": (
        *("report", "reports", "report_text", "full_report", "radiology_report"),
        *("befundtext", "befundbericht", "bericht"),
        *(
            "compte_rendu",
            "rapport",
            "informe",
            "informe_radiologico",
            "referto",
            "verslag",
            "radiologieverslag",
        ),
    ),
    "findings": (
        *("findings", "finding", "findings_text", "befund", "befunde"),
        *("constatations", "description_des_images", "hallazgos", "reperti", "bevindingen"),
    ),
    "impression": (
        *("impression", "impressions", "impression_text", "conclusion", "conclusions"),
        *("beurteilung", "zusammenfassung", "diagnose", "diagnosis"),
        *("diagnostic", "impresion", "conclusiones", "diagnostico", "conclusione", "conclusioni", "diagnosi"),
        *("conclusie",),
    ),
    "labels": (
        *("labels", "label", "finding_labels", "class", "classes", "class_name", "category", "categories"),
        *("keywords", "keyword", "tags"),
        *("schlagworter", "schlagwoerter", "schlagworte", "stichworte", "stichworter", "etiketten"),
        *("kategorie", "kategorien", "klasse", "klassen"),
        *("mots_cles", "mots_clefs", "etiquettes", "categorie", "classe"),
        *("palabras_clave", "etiquetas", "etiqueta", "categoria", "clase"),
        *("parole_chiave", "etichette", "etichetta", "trefwoorden"),
    ),
    "id": ("id",),
    "split": ("split", "subset", "partition", "data_split"),
    "order": (
        *("comment_number", "comment_no", "caption_number", "caption_no", "caption_index", "caption_id"),
        *("sentence_number", "sentence_id", "sent_id", "sentid"),
    ),
    "group": (
        *("group", "patient_id", "patientid", "patient", "subject_id", "patienten_id", "patientennummer"),
        *("id_patient", "id_paciente", "paciente", "id_paziente", "paziente", "patientnummer"),
    ),
}
# Columns of these names are texts of a table that has no other: short, and often of something else.
LAST_TEXTS: Final = ("alt", "title", "titel", "titre", "titulo", "titolo")
_BETWEEN: Final = re.compile(r"[\s_'’-]+")


def normal_name(name: str) -> str:
    """The name of a column in small letters without accents, with _ between its words."""
    plain = unicodedata.normalize("NFKD", _BETWEEN.sub("_", name.strip().casefold()))
    return "".join(sign for sign in plain if not unicodedata.combining(sign))
