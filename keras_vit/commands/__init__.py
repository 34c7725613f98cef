"""What the commands do: a module per verb, imported once its command runs."""
