"""The engine for Snowflake, by its Python driver.

Belongs here: `settings`, `access` (logins), `engine` (session, statements, catalog), `staging` (COPY from a stage), `names`
(identifiers as Snowflake stores them), `refusals` (errors and what to do about them), `grants` (least privileges).
"""
