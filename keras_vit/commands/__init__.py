"""What the commands do. Keras is imported when a command that needs it runs."""
