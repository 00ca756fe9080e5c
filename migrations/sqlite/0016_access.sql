-- Tokens of the API, which people create, and the accounts that they belong to.
CREATE TABLE token (
    id TEXT PRIMARY KEY,
    -- The SHA-256 of the token.
    digest BLOB NOT NULL UNIQUE,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    account TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    last_used_at INTEGER
) STRICT, WITHOUT ROWID;

-- What belongs to an account that was made by a call; those of the configuration are not stored.
CREATE TABLE account_rules (
    account TEXT PRIMARY KEY,
    body TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- NULL for the account default.
ALTER TABLE delivery ADD COLUMN account TEXT;

-- The id of the token that the session began with; NULL for the configured admin token.
ALTER TABLE session ADD COLUMN token TEXT;
-- The account that the person chose; NULL for the token's own.
ALTER TABLE session ADD COLUMN account TEXT;

-- The account of the issue that is held; NULL for default.
ALTER TABLE hold ADD COLUMN account TEXT;
