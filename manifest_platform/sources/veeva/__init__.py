"""Veeva Vault's Direct Data as a source: files from Vault's API become landed windows, verified and registered.

`client` asks Vault, `archive` unpacks and verifies, `layout` names what lies where, `producer` captures.
"""
