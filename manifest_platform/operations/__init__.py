"""Operations that the command line and Dagster both offer, such as explain, decide, reconcile, archive and the doctor.

Belongs here: what an operation does and what it reports, as values and sentences. Printing is in `cli`, Dagster in
`orchestration`, the processing of items in `pipeline`.
"""
