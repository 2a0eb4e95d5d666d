"""Edge. A module or a folder for each database that can hold a catalog."""
