"""The services that run jobs: plug-ins of the group `manifest_platform.job_services`, a module each."""
