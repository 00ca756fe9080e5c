-- Whose a pull request or a commit is: reviews, comments and checks name nothing else.
CREATE INDEX github_effect_pull ON github_effect (comment) WHERE kind = 'show_pull';
CREATE INDEX checkout_tip ON checkout (tip) WHERE tip IS NOT NULL;
CREATE INDEX checkout_pushing ON checkout (pushing) WHERE pushing IS NOT NULL;
