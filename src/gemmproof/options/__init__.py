"""The options of the commands, one file per command."""
