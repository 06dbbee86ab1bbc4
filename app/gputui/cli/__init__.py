"""The command line: one file a subcommand. It starts without Textual."""
