-- The last sync of each sandbox's workspace with the object storage.
CREATE TABLE sync (
    sandbox TEXT PRIMARY KEY,
    -- The version that was pushed or pulled.
    version TEXT NOT NULL,
    direction TEXT NOT NULL,
    synced_at INTEGER NOT NULL,
    files_processed INTEGER NOT NULL,
    files_uploaded INTEGER NOT NULL,
    files_downloaded INTEGER NOT NULL,
    files_deleted INTEGER NOT NULL,
    files_skipped INTEGER NOT NULL,
    bytes_transferred INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
