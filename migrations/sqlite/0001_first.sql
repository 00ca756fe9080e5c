-- The first layout: few narrow rows for each step, integer keys, and indexes that grow at their
-- end. What is filtered, joined or ordered by is a column; the rest of a row is one JSON `body`
-- that only the row structs of the adapter read and write.
--
-- Times are milliseconds since 1970 in UTC. A `repository` column holds the lower-case spelling.

-- One row: which installation this is, the current server process, and a counter that a readiness
-- check writes to see whether writing works.
CREATE TABLE meta (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    instance TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    probe INTEGER NOT NULL
) STRICT;

INSERT INTO meta (id, instance, epoch, probe) VALUES (1, lower(hex(randomblob(8))), 0, 0);

CREATE TABLE account (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

-- The current state of each home. The columns from `phase` to `search` describe its live sandbox
-- and are NULL where it has none.
CREATE TABLE issue (
    home INTEGER PRIMARY KEY,
    account INTEGER NOT NULL REFERENCES account (id),
    version INTEGER NOT NULL,
    due_at INTEGER,
    phase TEXT,
    sandbox_id TEXT,
    provider TEXT,
    external_id TEXT,
    created_at INTEGER,
    repository TEXT,
    search TEXT,
    body TEXT NOT NULL,
    CHECK ((phase IS NULL) = (sandbox_id IS NULL)),
    CHECK ((phase IS NULL) = (created_at IS NULL))
) STRICT;

CREATE INDEX issue_due ON issue (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX issue_live ON issue (home) WHERE phase IS NOT NULL;
CREATE UNIQUE INDEX issue_sandbox ON issue (sandbox_id) WHERE sandbox_id IS NOT NULL;
-- Lists newest first, and counts by phase without touching a row.
CREATE INDEX issue_newest ON issue (account, created_at, sandbox_id, phase)
    WHERE phase IS NOT NULL;

-- Sandboxes that were confirmed absent.
CREATE TABLE ended (
    id INTEGER PRIMARY KEY,
    account INTEGER NOT NULL REFERENCES account (id),
    home INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    sandbox_id TEXT NOT NULL UNIQUE,
    provider TEXT NOT NULL,
    external_id TEXT,
    created_at INTEGER NOT NULL,
    repository TEXT,
    search TEXT NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (home, generation)
) STRICT;

CREATE INDEX ended_newest ON ended (account, created_at, sandbox_id);

-- Under which names a home is known. The primary keys are the guarantee that a name belongs to one
-- home of an account.
CREATE TABLE issue_alias (
    account INTEGER NOT NULL,
    issue_id TEXT NOT NULL,
    home INTEGER NOT NULL,
    PRIMARY KEY (account, issue_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE numbered_alias (
    account INTEGER NOT NULL,
    repository TEXT NOT NULL,
    number INTEGER NOT NULL,
    home INTEGER NOT NULL,
    PRIMARY KEY (account, repository, number)
) STRICT, WITHOUT ROWID;

-- One row a step, in commit order.
CREATE TABLE timeline (
    id INTEGER PRIMARY KEY,
    home INTEGER NOT NULL,
    at INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    phase_from TEXT,
    phase_to TEXT,
    reason TEXT NOT NULL,
    cause TEXT NOT NULL
) STRICT;

CREATE INDEX timeline_home ON timeline (home);

-- Deliveries in the order of their commits. A GUID in the usual form is kept as its 16 bytes, any
-- other as text: it is the one index with random keys, so its size decides how many pages a
-- transaction touches.
CREATE TABLE delivery (
    id INTEGER PRIMARY KEY,
    guid ANY NOT NULL UNIQUE,
    received_at INTEGER NOT NULL,
    event TEXT NOT NULL,
    action TEXT NOT NULL,
    home INTEGER,
    applied INTEGER NOT NULL,
    reason TEXT NOT NULL
) STRICT;
