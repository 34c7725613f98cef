"""The commands, one in a file or a few of one kind. Keras is imported only when a command that needs it runs."""
