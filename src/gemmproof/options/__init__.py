"""The options of the commands, a file a command."""
