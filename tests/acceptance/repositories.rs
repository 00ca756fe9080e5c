//! A repository with a label, a command, a base branch and a directory of its own, on real sandboxes.

use crate::checkout::{CheckoutWorld, REPOSITORY, done};
use crate::process::until;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes a real sandbox and needs git; run by .ci/run"]
async fn a_repository_has_a_label_a_base_branch_and_a_directory_of_its_own() {
    let Some(world) = CheckoutWorld::new().await else { return };
    let next = world.github.commit(REPOSITORY, "next", &[("server/main", "x\n")], "Next");
    let variables = [
        ("ISSUEBOX__REPOSITORIES__octo/*__BASE_BRANCH", "main"),
        ("ISSUEBOX__REPOSITORIES__octo/hello__BASE_BRANCH", "next"),
        ("ISSUEBOX__REPOSITORIES__octo/hello__WORKING_DIR", "server"),
        ("ISSUEBOX__REPOSITORIES__octo/hello__TRIGGERS__LABEL", "robot"),
        ("ISSUEBOX__REPOSITORIES__octo/hello__TRIGGERS__COMMAND", "/robot"),
    ];
    let server = world.serve_with(&variables).await;
    world.label();
    let ignored = "another label than the trigger label was put on";
    until("the usual label to be ignored", || async {
        server.get("/v1/deliveries").await.json().to_string().contains(ignored)
    })
    .await;
    let at = (REPOSITORY, world.number);
    world.github.label(at, "mona", "robot");
    let id = world.checked_out(&server).await;
    let seen = done(&server, &id, "git rev-parse HEAD; pwd; cat main").await;
    assert_eq!(seen, format!("{next}\n/workspace/server\nx\n"));
    let path = format!("/v1/sandboxes/{id}/configuration");
    let made_from = server.get(&path).await.json()["data"].clone();
    assert_eq!(made_from["baseBranch"], "next");
    assert_eq!(made_from["templateToday"], "same");
    done(&server, &id, "echo y > main && git commit -qam Work && git push -q origin HEAD").await;
    until("a pull request", || async { !world.github.pulls(REPOSITORY).is_empty() }).await;
    assert_eq!(world.github.pulls(REPOSITORY)[0]["base"]["ref"], "next");
    until("the status comment", || async { world.says("`/robot stop`") }).await;
    server.stop().await;
    assert_eq!(world.github.violations(), Vec::<String>::new());
}
