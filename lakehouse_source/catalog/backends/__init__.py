"""Edge. One folder for each database that can hold a catalog."""
