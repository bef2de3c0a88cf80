/** English texts of `<case-book>`. */

export const en = {
  'book.title': 'Saved cases',
  'book.list': 'List',
  'book.option': '{name} ({count})',
  'book.none': 'No cases are saved here yet. The bookmark below a hit saves it in a list.',
  'book.empty': 'This list has no images.',
  'book.more': 'Show more',
  'book.export': 'Teaching file',
  'book.exportWhat': 'A zip of pictures and a table without ids, UIDs and dates. Read reports and notes before you pass it on.',
  'book.rename': 'Rename the list',
  'book.removeList': 'Remove the list',
  'book.entries': { one: '{count} case', other: '{count} cases' },

  'entry.open': 'Open {id}',
  'entry.compare': 'Compare',
  'entry.compareWith': 'Compare {id}',
  'entry.note': 'Add a note',
  'entry.noteOn': 'Add a note on {id}',
  'entry.edit': 'Edit the note',
  'entry.editOf': 'Edit the note on {id}',
  'entry.remove': 'Take out',
  'entry.removeOf': 'Take {id} out of the list',
  'entry.lost': 'No picture',
  'entry.by': '{name}, {time}',

  'edit.name': 'Name of the list',
  'edit.note': 'Note',
  'edit.save': 'Save',
  'edit.cancel': 'Cancel',

  'confirm.list': { one: 'Remove \u201c{name}\u201d with the note on its image? The image stays in the collection.', other: 'Remove \u201c{name}\u201d with the notes on its {count} images? The images stay in the collection.' },
  'confirm.entry': 'Take {id} out of the list, with the note on it?',
  'confirm.removing': 'Removing\u2026',
};
