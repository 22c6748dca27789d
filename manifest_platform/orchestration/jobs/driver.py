"""The driver of a job run that Dagster started: does its assignment with the job's Spark, and reports each event.

As a program (`python -m manifest_platform.orchestration.jobs.driver --config FILE`), or from a script that calls `main`, as
Glue needs it. Dagster Pipes says where the messages go, by the arguments of the program or by its environment. Progress is a
message, too. Dagster itself is not needed, only the package dagster-pipes.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from manifest_platform import aws, extras, masking, outward, progress, spark
from manifest_platform.config import load
from manifest_platform.faults import Transient
from manifest_platform.orchestration.jobs.assignments import event_to_json, from_json
from manifest_platform.pipeline import Pipeline

if TYPE_CHECKING:
    from dagster_pipes import PipesContext

DATASET, ASSIGNMENT = "dataset", "assignment"
"""The names of the extras of a Pipes context: what the driver is to do."""
DONE, FAILED = "done", "failed"
"""The kinds of the last message: the assignment was done, or it ended with an error."""
_SENT_EVERY_S = 1.0
_PROGRESS_S = 30.0
_TERMINATED = 143


def main(arguments: Sequence[str] | None = None) -> None:
    """Does the assignment of the job run. Exits with 1 if it ends with an error, which Dagster gets as a message."""
    extras.need("dagster_pipes", "boto3")
    from dagster_pipes import PipesCliArgsParamsLoader, PipesEnvVarParamsLoader, PipesS3MessageWriter, open_dagster_pipes

    parser = argparse.ArgumentParser(prog="driver", description="Does the assignment of a job run that Dagster started.")
    parser.add_argument("--config", default="manifest_platform.yaml", help="the configuration of the platform")
    options, _ = parser.parse_known_args(arguments)  # the service has arguments of its own
    outward.guard()
    by_arguments, by_environment = PipesCliArgsParamsLoader(), PipesEnvVarParamsLoader()
    loader = by_arguments if by_arguments.is_dagster_pipes_process() else by_environment
    if not loader.is_dagster_pipes_process():
        parser.error("only Dagster starts this program, with the parameters of Dagster Pipes; by hand: manifest-platform drain")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))  # a service cancels so: leases are given back
    writer = PipesS3MessageWriter(aws.client("s3"), interval=_SENT_EVERY_S)
    with open_dagster_pipes(params_loader=loader, message_writer=writer) as pipes:
        done = _reported(pipes, options.config)
    if not done:
        sys.exit(1)


def _reported(pipes: PipesContext, config_file: str) -> bool:
    """Does the assignment, and reports how it ended. Returns False if it ended with an error."""
    logging.basicConfig(level=logging.WARNING)
    reporter = progress.Reporter(lambda text: pipes.log.info(outward.clean(text)), _PROGRESS_S)
    try:
        with progress.reported_by(reporter):
            _do(pipes, config_file)
    except Exception as error:
        logging.getLogger(__name__).exception("the assignment ended with an error")
        pipes.report_custom_message(_failure(error))
        return False
    finally:
        spark.end()
    pipes.report_custom_message({"end": DONE})
    return True


def _do(pipes: PipesContext, config_file: str) -> None:
    config, dataset = load(config_file), pipes.get_extra(DATASET)
    assignment = from_json(pipes.get_extra(ASSIGNMENT))
    spark.enter_job()
    with Pipeline(config, config.dataset(dataset), pipes.run_id, author="dagster") as pipeline:
        for event in assignment.done(pipeline, config.spark.session):
            pipes.report_custom_message(event_to_json(event))


def _failure(error: Exception) -> dict[str, Any]:
    """Returns the message of an error, without secrets."""
    said = "".join(traceback.format_exception(error))
    return {
        "end": FAILED,
        "error": type(error).__name__,
        "message": masking.masked(str(error)),
        "traceback": masking.masked(said),
        "transient": isinstance(error, Transient),
    }


if __name__ == "__main__":
    main()
