-- The person whom GitHub logged in, and the rule that let the person in: a session without a token whose
-- user is set is not the admin token's.
ALTER TABLE session ADD COLUMN github_user INTEGER;
ALTER TABLE session ADD COLUMN github_login TEXT;
ALTER TABLE session ADD COLUMN login_grant TEXT;
