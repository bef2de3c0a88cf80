"""Texts of many scripts for tests of words."""

import random

from hypothesis import strategies as st

# Letters, digits, marks and signs that distinguish words, of every kind that is treated separately.
_SIGNS = (
    "aAéÉeE\u0301ßsSnöÖ1２ｅＡﬁ"  # Latin with accents, both composed and not, full width, a ligature
    "肺胸水炎々〇ー"  # Han
    "かがカガｶﾞ"  # Kana, with and without voicing, half width
    "가각ㄱㅏ\u1100\u1161\u11a8"  # Hangul, composed and not
    "กำน้ั"  # Thai
    "कि्षय"  # Devanagari with vowel signs
    "אבّعָש"  # Hebrew and Arabic with points
    "дйЙ"
    " \u200b\u00ad\u200d\n.,-_'\"。、・*()^:&|!<>"
)
multilingual = st.text(alphabet=_SIGNS, max_size=40) | st.text(max_size=40)


def draw_texts(count: int, seed: int) -> list[str]:
    """Draw texts of up to 30 signs."""
    drawn = random.Random(seed)
    return ["".join(drawn.choices(_SIGNS, k=drawn.randint(1, 30))) for _ in range(count)]
