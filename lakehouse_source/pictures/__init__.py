"""Pure. Pictures of a dataset's files as SVG, on pages of HTML that need nothing else."""
