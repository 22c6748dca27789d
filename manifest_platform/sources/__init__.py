"""The sources: plug-ins that know how directories of one kind are named, listed and shredded.

Belongs here: the contract that a source fulfils, code that several sources share, and a folder for each source. Does not belong
here: the order of items and what may happen next (`manifest`), the steps (`pipeline`), and loading (`warehouse`).

    source, settings            the contract, and the settings that all sources share
    directories                 listing of landing roots: directories, their files, and which are complete
    layouts, windows            landing roots that are ordered by time, and the division of their files into items
    capture                     the values of a capture: a source downloads what its origin published
    preview                     the values of a preview, before anything is configured
    answers                     an HTTP client for servers that are not trusted
    errors                      the errors of a landing place
    snowplow, veeva, items      Snowplow's enriched events; Veeva's Direct Data; items that programs register
"""
