"""The command line: one file per subcommand. It starts without Textual."""
