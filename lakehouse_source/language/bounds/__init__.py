"""Pure. Conditions over a schema, and what they imply about the bounds of columns."""
