"""Pure. What operators, casts and functions do: their types, their kernels, NULL and order."""
