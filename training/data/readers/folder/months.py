"""Names of months in German, English, French, Spanish, Italian, Dutch and Portuguese, also in short."""

from typing import Final

from training.data.readers.common.roles import normal_name

# A line a month; names are compared in small letters without accents.
_NAMES: Final = """
januar january janvier enero gennaio januari janeiro jänner jan janv ene gen
februar february février febrero febbraio februari fevereiro feber feb févr fev febr
märz march mars marzo maart março mar mrz mrt
april avril abril aprile apr avr abr
mai may mayo maggio mei maio mag
juni june juin junio giugno junho jun giu
juli july juillet julio luglio julho jul juil lug
august août agosto augustus aug ago
september septembre septiembre setiembre settembre setembro sep sept set
oktober october octobre octubre ottobre outubro okt oct ott out
november novembre noviembre novembro nov
dezember december décembre diciembre dicembre dezembro dez dec déc dic
"""
MONTHS: Final = {
    normal_name(name): number
    for number, names in enumerate(_NAMES.strip().splitlines(), 1)
    for name in names.split()
}
