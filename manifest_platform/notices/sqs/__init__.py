"""Notices of objects in S3, through a queue in SQS: the plug-in for `landing.notify: sqs://QUEUE`."""
