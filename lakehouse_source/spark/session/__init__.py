"""Door. What a Spark session is told: settings, options, secrets, workers."""
