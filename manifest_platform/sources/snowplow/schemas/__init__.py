"""Schemas: their keys, the registries that have them, and the tables that they define."""
