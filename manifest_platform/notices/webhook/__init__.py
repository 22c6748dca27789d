"""Notices of objects in S3, posted by the storage's server: the plug-in for `landing.notify: http://HOST:PORT`."""
