"""Pure. Expressions as trees, and what they are made of: names, values, types, moments."""
