"""Redshift as the warehouse: its settings, its engine, COPY from S3, and what its errors mean."""
