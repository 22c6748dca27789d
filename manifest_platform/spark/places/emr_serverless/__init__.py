"""Spark in sessions of EMR Serverless, by Spark Connect: `spark.where: emr_serverless`.

Belongs here: the settings (`place`), the life of a session (`sessions`), and the token of its requests (`tokens`).
"""
