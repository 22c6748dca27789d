"""Retention: deletes the landed directories, shredded output, bad rows and superseded merged objects that nothing needs.

`rule` decides, from the facts that `facts` and `merged` read; `run` records and deletes, with `removal`.
"""
