-- Whether a delivery did not arrive and was read from GitHub instead.
ALTER TABLE delivery ADD COLUMN recovered INTEGER NOT NULL DEFAULT 0;

-- Up to when GitHub's delivery logs were compared with the deliveries here, by GitHub's clock. A
-- source is `app`, or `hook:` and the id of a repository's webhook.
CREATE TABLE delivery_log (
    source TEXT PRIMARY KEY,
    compared_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The webhooks of repositories that sent something here.
CREATE TABLE repository_hook (
    repository_id INTEGER PRIMARY KEY,
    hook INTEGER NOT NULL
) STRICT;
