"""Languages of texts: findings are read in English and German alone.

Names of findings are often the same in other languages, where the cues of these two do not hold: "sin
pneumothorax" denies one, and no rule here knows it.
"""

import re
from functools import cache
from typing import Final

# Frequent words of other languages that are no words of English or German, nor abbreviations of medicine.
_OTHERS: Final = (
    # French
    "pas sans aucun aucune absence_d du les une avec dans sur aux droite gauche épanchement il_n n'y cœur "
    "poumons visible_à normale normaux est_normal "
    # Italian
    "della dello delle dei degli alla nella nel nessun nessuna senza assenza esiti destra destro sinistra "
    "sinistro versamento pleurico non_si non_è non_vi non_sono non_evidenti non_segni reperti quadro lesioni "
    # Spanish and Portuguese
    "ni el los las del una sin_evidencia sin_signos sin_imágenes sin_derrame se observa observan evidencia "
    "evidencian derrame con signos izquierdo izquierda derecho derecha pulmones sem não nao com há ausência "
    "esquerdo esquerda direito direita sinais pulmões "
    # Dutch
    "geen het een zonder aanwijzingen voor beiderzijds niet wel duidelijk pleuravocht "
    # Danish, Norwegian, Swedish
    "ingen inga inget ikke inte och på af uden uten utan høyre venstre höger vänster hø ve tegn tecken "
    "påvist "
    # Polish, Czech, Croatian, Slovak
    "bez brak cech oraz jest zmian widoczne płynu není známek výpotku nema znakova "
    # Hungarian, Finnish, Turkish, Romanian, Indonesian, Vietnamese
    "nincs nem és mellkasi ei eikä näy yok yoktur ve bir izlenmedi saptanmadı fără nu tidak tampak tak "
    "không có"
)
# Dutch and others share "is", "of", "links" and the like, which tell nothing.
_OWN: Final = (
    "the are were with without and there has have been seen evidence this that which both noted right "
    "left small das und oder kein keine keinen keiner keines ohne ist sind im mit nicht bei zeigt "
    "beidseits eine einer eines für"
)
# Letters of other scripts; single ones are signs, such as alpha.
_SCRIPT: Final = r"[^\W\d_a-zà-öø-ÿāăąćčďđęěğıłńňőřśşšťůűźżžœſ\u1e00-\u1eff\u212a]{2,}"


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    others, own = ("|".join(word.replace("_", r"\s+") for word in words.split()) for words in (_OTHERS, _OWN))
    # "Sin." is Latin, and "l'" and "d'" belong to the word behind them.
    other = rf"(?<![\w+-])(?:{others}|sin(?=\s+\w)|(?<![:=–-]\s)(?<!\()y(?= \w)|[dl]['’](?=\w{{3}}))(?!\.\w)"
    return (
        re.compile(rf"{other}(?:(?<=['’])|(?!\w))"),
        re.compile(rf"(?<!\w)(?:{own})(?!\w)"),
        re.compile(_SCRIPT),
    )


def is_read(text: str, *, by_script: bool = True) -> bool:
    """Tell whether a text may be English or German, by its words and its letters, or by its words alone."""
    others, own, script = _patterns()
    plain = text.lower()
    foreign = len(others.findall(plain))
    if by_script and not plain.isascii():
        foreign += len(script.findall(plain))
    return foreign == 0 or foreign < len(own.findall(plain))
