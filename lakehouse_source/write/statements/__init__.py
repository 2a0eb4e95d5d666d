"""Verb. DELETE, UPDATE, MERGE and the expiry of rows."""
