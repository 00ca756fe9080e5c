-- What reaches beyond one issue: news of a repository or an installation, wishes that wait, holds,
-- objects without a record, and how long deliveries are kept.

-- Derived copies out of the body, whatever the phase: what news of a repository or an installation
-- concerns, and which wish waits the longest. `wish_repository` is the lower-case spelling and is
-- filled only while a wish waits.
ALTER TABLE issue ADD COLUMN repository_id INTEGER;
ALTER TABLE issue ADD COLUMN installation_id INTEGER;
ALTER TABLE issue ADD COLUMN wish_at INTEGER;
ALTER TABLE issue ADD COLUMN wish_repository TEXT;

-- A number too large for a column comes out as a REAL; GitHub has given none.
UPDATE issue
SET repository_id = iif(typeof(body ->> '$.facts.repository_id') = 'integer',
                        body ->> '$.facts.repository_id', NULL),
    installation_id = iif(typeof(body ->> '$.facts.installation_id') = 'integer',
                          body ->> '$.facts.installation_id', NULL),
    wish_at = body ->> '$.wish.since',
    wish_repository = iif(body ->> '$.wish.since' IS NULL, NULL,
                          lower(body ->> '$.facts.repository'));

CREATE INDEX issue_repository ON issue (repository_id) WHERE repository_id IS NOT NULL;
CREATE INDEX issue_installation ON issue (installation_id) WHERE installation_id IS NOT NULL;
-- Holds all that a fair order is made of.
CREATE INDEX issue_wish ON issue (account, wish_repository, wish_at) WHERE wish_at IS NOT NULL;

-- Numbers up to this are not given to homes; objects at a provider may carry them.
ALTER TABLE meta ADD COLUMN homes_reserved INTEGER NOT NULL DEFAULT 0;

-- Which repository had this name: one that is made again under an old name has another id. NULL
-- where it is not known.
ALTER TABLE numbered_alias ADD COLUMN repository_id INTEGER;

UPDATE numbered_alias
SET repository_id = (
    SELECT i.repository_id FROM issue AS i
    WHERE i.home = numbered_alias.home
      AND lower(i.body ->> '$.facts.repository') = numbered_alias.repository
);

-- NULL: done. Else `pending` or `set_aside`. What is done is not written, so that nearly every row
-- stays as short as it was.
ALTER TABLE delivery ADD COLUMN state TEXT;

CREATE INDEX delivery_state ON delivery (state) WHERE state IS NOT NULL;

-- Deliveries that are still to be applied to one issue after the other, by their row.
CREATE TABLE pending (
    delivery INTEGER PRIMARY KEY REFERENCES delivery (id),
    tries INTEGER NOT NULL,
    done_to INTEGER,
    body TEXT NOT NULL
) STRICT;

-- What people hold. `name` is what is compared, `shown` is how it was written.
CREATE TABLE hold (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    shown TEXT NOT NULL,
    reason TEXT NOT NULL,
    since INTEGER NOT NULL,
    held_by TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

-- Objects that a sweep saw without a record.
CREATE TABLE stray (
    provider TEXT NOT NULL,
    external_id TEXT NOT NULL,
    object_name TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    home INTEGER NOT NULL,
    issue_id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    mode TEXT NOT NULL,
    first_seen_at INTEGER NOT NULL,
    PRIMARY KEY (provider, external_id)
) STRICT, WITHOUT ROWID;

-- Who each provider said it is, when it was first asked.
CREATE TABLE provider_identity (
    provider TEXT PRIMARY KEY,
    identity TEXT NOT NULL
) STRICT, WITHOUT ROWID;
