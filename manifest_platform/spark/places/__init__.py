"""The places where Spark computes: plug-ins of the group `manifest_platform.places`, a module each. `spark.where` names one."""
