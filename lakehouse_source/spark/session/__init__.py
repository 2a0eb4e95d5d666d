"""Door. What a Spark session gets: settings, options, secrets, workers."""
