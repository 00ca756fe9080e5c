-- Requests to models: each reserves its worst case before it goes out, and is settled with what it cost.
-- Amounts are billionths of a US dollar; days are counted from 1970 in UTC.
CREATE TABLE model_request (
    id INTEGER PRIMARY KEY,
    run BLOB NOT NULL,
    home INTEGER NOT NULL,
    sandbox TEXT NOT NULL,
    account TEXT NOT NULL,
    repository TEXT,
    model TEXT NOT NULL,
    begun_at INTEGER NOT NULL,
    -- The server that sent it: what an earlier one left open is spent until it is settled by time.
    epoch INTEGER NOT NULL,
    worst INTEGER NOT NULL,
    input_cost INTEGER NOT NULL,
    -- All of these are NULL until it is settled; of one that was settled by time only the cost is known.
    cost INTEGER,
    status INTEGER,
    duration_ms INTEGER,
    input INTEGER,
    output INTEGER,
    cache_read INTEGER,
    cache_write INTEGER
) STRICT;

CREATE INDEX model_request_open ON model_request (account) WHERE cost IS NULL;

-- What was settled, summed.
CREATE TABLE model_usage (
    home INTEGER NOT NULL,
    run BLOB NOT NULL,
    day INTEGER NOT NULL,
    model TEXT NOT NULL,
    account TEXT NOT NULL,
    repository TEXT,
    requests INTEGER NOT NULL,
    input INTEGER NOT NULL,
    output INTEGER NOT NULL,
    cache_read INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    cost INTEGER NOT NULL,
    PRIMARY KEY (home, run, day, model)
) STRICT, WITHOUT ROWID;

CREATE TABLE model_day (
    account TEXT NOT NULL,
    day INTEGER NOT NULL,
    cost INTEGER NOT NULL,
    PRIMARY KEY (account, day)
) STRICT, WITHOUT ROWID;
