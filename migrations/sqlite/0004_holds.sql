-- A hold follows a repository to its new name once: which name that was.
ALTER TABLE hold ADD COLUMN followed_to TEXT;
