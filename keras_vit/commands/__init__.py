"""The commands, one file each. Keras is imported only when a command that needs it runs."""
