"""The source of Veeva Vault's Direct Data: windows of changes, daily logs and snapshots.

Others land the windows, or the platform captures them from Vault.

    source       the source: feeds, steps, checks, schedules of captures
    layout       names and places of windows below the landing root
    producer     a capture: downloads, verifies, writes and registers windows
    client       Vault's API: sessions, the list of files, downloads
    login        credentials, and tokens of an identity provider
    reading      untrusted answers, read safely
    file_list    the entries of Vault's list of files
    files        values: an announced file, a part, the sidecar of a captured window
    archive      downloads an archive's parts, unpacks and verifies them
    direct_data  manifest.csv and metadata, and the tables that follow from them
    shredder     the Spark job over windows
    recognition  guesses of settings for a folder that is not configured yet
    preview      a sample of windows, shredded in memory
"""
