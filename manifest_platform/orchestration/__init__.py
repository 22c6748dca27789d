"""Dagster only: assets, the drain job, sensors, resources, the IO manager and checks, built from the configuration.

Belongs here: how Dagster shows and drives the pipelines. What may happen next is the manifest's matter, and how it is done the
pipeline's.
"""
