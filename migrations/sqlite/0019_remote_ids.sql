-- The id of the repository that a sandbox checked out: an issue that is transferred leaves it behind.
ALTER TABLE checkout ADD COLUMN remote_id INTEGER;

-- Known by a name of its issue in that repository, also if the issue left it. Of a repository that was renamed
-- since the checkout it is not known.
UPDATE checkout SET remote_id = (
    SELECT max(alias.repository_id) FROM numbered_alias AS alias
    WHERE alias.home = checkout.home AND alias.repository = lower(checkout.remote)
);
