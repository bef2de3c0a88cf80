"""The `recoquest` command: one file a command; heavy imports happen inside the commands."""
