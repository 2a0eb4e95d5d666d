"""Pure. Conditions before a schema is known: SQL texts, triples and Arrow expressions."""
