"""What all of training stands on: errors, files, records, tables, memory and progress."""
