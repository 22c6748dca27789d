"""PostgreSQL as the warehouse: its settings, its engine, and what its errors mean."""
