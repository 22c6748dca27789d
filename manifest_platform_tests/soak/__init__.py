"""A long day, played: runs land, some corrupt, in bursts; every process is killed again and again; what is left is audited.

    supervised   the processes that Dagster is made of, each started again when it ends
    day          what happens: the producer, the operator, the killer
    audit        what must be true in the end: each event once, in order, no item blamed, no process left
    program      what both soaks share: time that passes, the result, the command line
    growth       what grew with the runs, and what housekeeping took away again
    on_cluster   a follower on a cluster, whose programs are killed and whose stores are cut off

`make soak` plays twenty minutes: `python -m manifest_platform_tests.soak --minutes 20`.
"""
