"""Backups: everything that can be searched in one file, and back again."""

from index.backup.restore import bring_backup_keys, restore_backup
from index.backup.write import write_backup

__all__ = ["bring_backup_keys", "restore_backup", "write_backup"]
