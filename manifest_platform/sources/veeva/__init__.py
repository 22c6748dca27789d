"""Veeva Vault's Direct Data as a source: files from Vault's API become landed windows, verified and registered.

`client` asks Vault, `reading` takes what it tells, `archive` unpacks and verifies, `layout` names what lies
where, `producer` captures.
"""
