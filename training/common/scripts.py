"""Scripts whose words have no spaces between them, as the ranges of a class of a regular expression."""

from typing import Final

UNSPACED: Final = (
    # Thai, Lao, Burmese, Khmer, each without its digits.
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ebd\u0ec0-\u0ece\u0edc-\u0edf\u1000-\u103f\u1050-\u108f\u109a-\u109d"
    "\u1780-\u17d3\u17d7\u17dc\u17dd\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa76\uaa7a-\uaa7f"
    # Hangul, Kana, Bopomofo.
    "\u1100-\u11ff\ua960-\ua97c\uac00-\ud7fb\u3031-\u3035\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa"
    "\u30fc-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff\U0001aff0-\U0001b16f"
    # Han.
    "\u3005-\u3007\u3021-\u3029\u303b\u3400-\u4dbf\u4e00-\u9fff\ufa0e-\ufa29\U00020000-\U0003fffd"
)
