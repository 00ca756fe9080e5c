//! `.github/issuebox.toml` of a repository, in real sandboxes: it sets them up as the branch has it that
//! the work begins at, and the agent's branch has no say.

use issuebox::github::model::{FaultKind, ModelFault};
use serde_json::json;

use crate::checkout::{CheckoutWorld, REPOSITORY, done};
use crate::process::{Place, Server, until};

const READS: (&str, &str) = ("ISSUEBOX__TEMPLATES__DEFAULT__GIT__REPOSITORY_FILE", "true");

const AGENT: (&str, &str) = ("ISSUEBOX__TEMPLATES__DEFAULT__AGENT", "scripted");

const FILE: &str = r#"working_dir = "web"
instructions = "Keep lines short."
setup = [
    "cat word > ../made; pwd > ../where",
    { run = ["sh", "-c", "echo $KEY >> made"], cwd = ".", env = { KEY = "value" } },
]
"#;

/// An agent that writes down where it is and what it is given.
fn configure(place: &Place) {
    place.configure(
        "[agents.scripted]\nkind = \"command\"\npath = \"/bin/bash\"\n\
         args = [\"-c\", \"pwd > /workspace/agent-where; cat > /workspace/agent-asked; echo Done.\"]",
    );
}

async fn settled(server: &Server, number: u64) -> serde_json::Value {
    let path = format!("/v1/repos/{REPOSITORY}/issues/{number}/sandbox");
    let found = || async { server.get(&path).await.json()["data"].clone() };
    until("the sandbox to run or to fail", || async {
        let phase = found().await["phase"].clone();
        phase == "running" || phase == "failed"
    })
    .await;
    found().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes a real sandbox and needs git; run by .ci/run"]
async fn a_repository_sets_up_its_sandboxes_and_the_agents_branch_has_no_say() {
    let Some(world) = CheckoutWorld::new().await else { return };
    configure(&world.place);
    let (path, word) = (".github/issuebox.toml", ("web/word", "base\n"));
    let tip = world.github.commit(REPOSITORY, "main", &[(path, FILE), word], "Set up");
    let server = world.serve_with(&[READS, AGENT]).await;
    world.label();
    let id = world.checked_out(&server).await;
    until("the agent's run", || async {
        server.sh(&id, "cat /workspace/agent-asked").await["stdout"] != ""
    })
    .await;
    let seen = done(&server, &id, "cat made where agent-where").await;
    assert_eq!(seen, "base\nvalue\n/workspace/web\n/workspace/web\n");
    let asked = done(&server, &id, "cat agent-asked").await;
    let part = "kind=\"repository instructions\">\nKeep lines short.\n";
    assert!(asked.contains(part), "{asked}");
    let configuration = format!("/v1/sandboxes/{id}/configuration");
    let shown = server.get(&configuration).await.json()["data"].clone();
    let file = json!({"commit": tip, "workingDir": "web", "instructions": "Keep lines short."});
    assert_eq!(shown["repositoryFile"], file);
    assert_eq!(shown["templateToday"], "same");

    // What the agent changes and pushes counts for nothing, also when the cold start runs again.
    done(
        &server,
        &id,
        "echo 'setup = [\"echo agent > made\"]' > .github/issuebox.toml && git commit -qam Mine && \
         git push -q origin HEAD && find . -mindepth 1 -delete",
    )
    .await;
    for order in ["stop", "start"] {
        let path = format!("/v1/sandboxes/{id}/{order}?wait=60");
        let answer = server.post(&path, &json!({})).await;
        assert!(answer.is_success(), "{answer:?}");
    }
    let seen =
        done(&server, &id, "cat made; git log -1 --format=%s; cat .github/issuebox.toml").await;
    assert!(seen.starts_with("base\nvalue\nMine\nsetup = [\"echo agent"), "{seen}");
    assert_eq!(server.get(&configuration).await.json()["data"]["repositoryFile"], file);
    server.stop().await;
    assert_eq!(world.github.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes a real sandbox and needs git; run by .ci/run"]
async fn a_file_that_is_refused_fails_the_create_until_it_is_repaired() {
    let Some(world) = CheckoutWorld::new().await else { return };
    let commit = |file: &str| {
        world.github.commit(REPOSITORY, "main", &[(".github/issuebox.toml", file)], "Set up")
    };
    commit("setup = [\"true\"]\nnetwork = \"full\"");
    let server = world.serve_with(&[READS]).await;
    world.label();
    let failed = settled(&server, world.number).await;
    let failure = &failed["failure"];
    assert_eq!((&failed["phase"], &failure["code"]), (&json!("failed"), &json!("hook_failed")));
    let message = failure["message"].as_str().expect("a message");
    assert!(message.starts_with("cannot use .github/issuebox.toml of main at "), "{message}");
    let why = ":2: network is set by the operator, not by a repository; remove it";
    assert!(message.ends_with(why), "{message}");
    let retry = format!("/v1/sandboxes/{}/retry?wait=60", failed["id"].as_str().expect("an id"));
    commit("setup = [\"true\", \"echo no such package >&2; exit 3\"]");
    let answer = server.post(&retry, &json!({})).await.json();
    let message = answer["data"]["failure"]["message"].as_str().expect("a message");
    let step = ".github/issuebox.toml setup step 2 of 2 (sh -c echo no such";
    assert!(message.starts_with(step) && message.ends_with("no such package"), "{message}");
    // Repaired, but GitHub is away for a moment: that is tried again by itself.
    commit("setup = [\"true\"]");
    let contents = format!("/repos/{REPOSITORY}/contents/**");
    world.github.order(ModelFault::on("GET", &contents, FaultKind::Status(502)));
    let answer = server.post(&retry, &json!({})).await.json();
    assert_eq!(answer["data"]["phase"], "running", "{answer}");
    let asked = world.github.calls();
    let mut reads = asked.iter().filter(|call| call.path.contains("/contents/"));
    assert_eq!(reads.next_back().map(|call| call.status), Some(200));
    assert!(asked.iter().any(|call| call.path.contains("/contents/") && call.status == 502));
    server.stop().await;
    assert_eq!(world.github.violations(), Vec::<String>::new());
}
