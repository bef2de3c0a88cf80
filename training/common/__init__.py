"""What all of training uses: errors, files, records, tables, memory and progress."""
