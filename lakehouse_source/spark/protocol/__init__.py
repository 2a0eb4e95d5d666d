"""Door. The words and messages that the JVM and Python exchange."""
