"""The catalogs through which readers find merged partitions: the contract (`catalog`) and a module for each catalog.

A catalog is a plug-in: nothing outside of a plug-in imports it, except through `open_catalog`. `publish` decides what a catalog
shows; `readers` read files without a catalog.
"""
