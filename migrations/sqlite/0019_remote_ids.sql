-- The id of the repository that a sandbox checked out: an issue that is transferred leaves it behind.
ALTER TABLE checkout ADD COLUMN remote_id INTEGER;

-- Of one whose repository was renamed or transferred since, the id is not known.
UPDATE checkout SET remote_id = (
    SELECT issue.repository_id FROM issue
    WHERE issue.home = checkout.home AND issue.repository = lower(checkout.remote)
);
