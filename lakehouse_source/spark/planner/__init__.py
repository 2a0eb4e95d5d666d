"""Door. The planner extension: its sources, its jar and how the jar is built."""
