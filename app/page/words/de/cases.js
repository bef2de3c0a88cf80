/** German texts of `<case-book>`. */

export const de = {
  'book.title': 'Gespeicherte Fälle',
  'book.list': 'Liste',
  'book.option': '{name} ({count})',
  'book.none': 'Hier sind noch keine Fälle gespeichert. Das Lesezeichen unter einem Treffer speichert ihn in einer Liste.',
  'book.empty': 'Diese Liste enthält keine Bilder.',
  'book.more': 'Mehr anzeigen',
  'book.export': 'Lehrdatei',
  'book.exportWhat': 'Ein ZIP mit Bildern und einer Tabelle ohne Kennungen, UIDs und Daten. Lesen Sie Befunde und Notizen, bevor Sie es weitergeben.',
  'book.rename': 'Liste umbenennen',
  'book.removeList': 'Liste entfernen',
  'book.entries': { one: '{count} Fall', other: '{count} Fälle' },

  'entry.open': '{id} öffnen',
  'entry.compare': 'Vergleichen',
  'entry.compareWith': '{id} vergleichen',
  'entry.note': 'Notiz hinzufügen',
  'entry.noteOn': 'Notiz zu {id} hinzufügen',
  'entry.edit': 'Notiz ändern',
  'entry.editOf': 'Notiz zu {id} ändern',
  'entry.remove': 'Herausnehmen',
  'entry.removeOf': '{id} aus der Liste herausnehmen',
  'entry.lost': 'Kein Bild',
  'entry.by': '{name}, {time}',

  'edit.name': 'Name der Liste',
  'edit.note': 'Notiz',
  'edit.save': 'Speichern',
  'edit.cancel': 'Abbrechen',

  'confirm.list': { one: '\u201e{name}\u201c mit der Notiz zu ihrem Bild entfernen? Das Bild bleibt in der Sammlung.', other: '\u201e{name}\u201c mit den Notizen zu ihren {count} Bildern entfernen? Die Bilder bleiben in der Sammlung.' },
  'confirm.entry': '{id} mit der Notiz aus der Liste herausnehmen?',
  'confirm.removing': 'Wird entfernt\u2026',
};
