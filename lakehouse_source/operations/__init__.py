"""Verb. The named operations of plake: one list for CALL, the command line and servers.

`listing.OPERATIONS` is the list. An entry says what an operation takes, which columns its rows
have and what it does. A door finds the dataset, translates types and shows the rows. Importing
the list imports neither PyArrow nor any room that works.
"""
