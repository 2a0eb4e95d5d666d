"""Door. The command `plake`: the operations at a terminal and in scripts."""
