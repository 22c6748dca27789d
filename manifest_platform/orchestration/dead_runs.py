"""Dead runs: sensors that tell the manifest of a run that failed or was canceled, so that its leases need not run out."""

from collections.abc import Collection

import dagster as dg

from manifest_platform.orchestration.resources import ManifestResource


def build_dead_run_sensors(datasets: Collection[str], seconds: int) -> list[dg.SensorDefinition]:
    """Sensors that end the leases of a run that failed or was cancelled, so that the next drain need not wait for them."""

    def tell(context: dg.RunStatusSensorContext, manifest: ManifestResource) -> None:
        run_id = context.dagster_run.run_id
        for dataset in datasets:
            with manifest.pipeline(dataset) as pipeline:
                ended = pipeline.manifest.end_leases(run_id)
            if ended:
                context.log.info(f"run {run_id} is dead: {ended} lease(s) of {dataset} ended")

    @dg.run_failure_sensor(
        name="manifest_failure_sensor",
        minimum_interval_seconds=seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells the manifest that a run failed, so that its leases need not run out.",
    )
    def failure_sensor(context: dg.RunFailureSensorContext, manifest: ManifestResource) -> None:
        tell(context, manifest)

    @dg.run_status_sensor(
        name="manifest_cancel_sensor",
        run_status=dg.DagsterRunStatus.CANCELED,
        minimum_interval_seconds=seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells the manifest that a run was cancelled, so that its leases need not run out.",
    )
    def cancel_sensor(context: dg.RunStatusSensorContext, manifest: ManifestResource) -> None:
        tell(context, manifest)

    return [failure_sensor, cancel_sensor]
