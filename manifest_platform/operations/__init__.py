"""Operations that the command line and Dagster both offer, such as explain, decide, reconcile, archive and the doctor.

Belongs here: answers, decisions and repairs for operators. An operation returns values and sentences. It does not print.

Does not belong here: printing (`cli`), Dagster (`orchestration`), the rules of the manifest (`manifest`), and the work on
items, such as shredding, loading and merging (`pipeline`).
"""
