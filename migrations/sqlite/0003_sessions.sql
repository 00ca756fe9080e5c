-- People's sessions on the page. The key itself is in the cookie alone; here is its SHA-256.
CREATE TABLE session (
    hash BLOB PRIMARY KEY,
    ends_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX session_ends ON session (ends_at);
