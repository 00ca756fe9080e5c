//! GitHub is asked before a sandbox is made, by the whole program: about the issue of an ensure, and about
//! who put the label on, also after the server was killed; and how the issue is, while it is made.

use issuebox::github::model::{FaultKind, GithubModel, HookDoor, ModelFault};

use crate::connected::serve_connected;
use crate::process::{Place, Server, TOKEN, WAIT, until};

const REPOSITORY: &str = "octo/hello";
const PERMISSION: &str = "repos/*/*/collaborators/*/permission";

/// A GitHub with a writer, a reader and a stranger's issue, and the place of a server with credentials.
struct AskedWorld {
    github: GithubModel,
    place: Place,
    number: u64,
}

impl AskedWorld {
    fn new() -> Self {
        Self::with_provider("")
    }

    /// With these lines in the configuration of the provider.
    fn with_provider(faults: &str) -> Self {
        let github = GithubModel::start().expect("it starts");
        github.repository(REPOSITORY);
        github.set_role(REPOSITORY, "wren", "write");
        github.set_role(REPOSITORY, "remy", "read");
        github.install("octo");
        let number = github.open_issue(REPOSITORY, "stella", "A title", "A body");
        Self { github, place: Place::simulated(faults), number }
    }

    async fn serve(&self) -> Server {
        serve_connected(&self.place, &self.github, &[]).await
    }

    /// Runs `issuebox ensure`; its exit code, and what it printed.
    async fn ensure(&self, server: &Server, issue: &str) -> (Option<i32>, String) {
        let mut command = self.place.command(&["ensure", issue]);
        command.arg("--server").arg(&server.url).env("ISSUEBOX_TOKEN", TOKEN);
        let output = command.output().await.expect("it runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    }

    fn label(&self, login: &str) {
        self.github.label((REPOSITORY, self.number), login, "agent");
    }

    /// The label is put on and taken off; returns when both deliveries are taken in.
    async fn label_for_a_moment(&self, server: &Server, login: &str) {
        let before = self.github.delivered_guids();
        self.label(login);
        self.github.unlabel((REPOSITORY, self.number), login, "agent");
        let sent: Vec<String> = self.github.delivered_guids().split_off(before.len());
        assert_eq!(sent.len(), 2);
        let are_taken_in = || async {
            let listed = server.get("/v1/deliveries?limit=100").await.json();
            let rows = listed["data"].as_array().expect("a list").clone();
            sent.iter().all(|guid| rows.iter().any(|row| row["delivery"] == guid.as_str()))
        };
        until("both deliveries", are_taken_in).await;
    }

    fn nothing_wrong(&self) {
        assert_eq!(self.github.violations(), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issue_that_the_server_never_heard_of_is_ensured_by_its_number() {
    let world = AskedWorld::new();
    let server = world.serve().await;
    world.github.set_door(HookDoor::Closed);
    let (code, text) = world.ensure(&server, &format!("{REPOSITORY}#{}", world.number)).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("created"), "{text}");
    until("a sandbox", || async { world.place.calls("create").len() == 1 }).await;
    let (code, text) = world.ensure(&server, "octo/hello#77").await;
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("GitHub does not know the issue octo/hello#77"), "{text}");
    world.github.close((REPOSITORY, world.number), "stella");
    let (code, text) = world.ensure(&server, &format!("{REPOSITORY}#{}", world.number)).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("is closed on GitHub"), "{text}");
    assert_eq!(world.place.calls("create").len(), 1);
    server.stop().await;
    world.nothing_wrong();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_label_of_who_may_not_write_makes_no_sandbox_and_a_writers_does() {
    let world = AskedWorld::new();
    let server = world.serve().await;
    for login in ["stella", "remy"] {
        world.label_for_a_moment(&server, login).await;
    }
    assert_eq!(world.place.calls("create").len(), 0);
    // On an issue of its own: a label moves no time of an issue, and at equal times its removal wins.
    let other = world.github.open_issue(REPOSITORY, "stella", "Another title", "");
    world.github.label((REPOSITORY, other), "wren", "agent");
    until("a sandbox", || async { world.place.calls("create").len() == 1 }).await;
    server.stop().await;
    world.nothing_wrong();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_while_it_asks_loses_nothing() {
    let world = AskedWorld::new();
    let server = world.serve().await;
    world.github.order(ModelFault::on("GET", PERMISSION, FaultKind::Held));
    world.label("wren");
    let waited = tokio::time::timeout(WAIT, world.github.until(|github| github.held() == 1)).await;
    assert!(waited.is_ok(), "nothing was asked");
    server.kill().await;
    assert_eq!(world.place.calls("create").len(), 0);
    let server = world.serve().await;
    until("a sandbox", || async { world.place.calls("create").len() == 1 }).await;
    world.github.release();
    server.stop().await;
    world.nothing_wrong();
}

#[tokio::test(flavor = "multi_thread")]
async fn github_is_asked_how_the_issue_is_while_its_sandbox_is_made() {
    let world = AskedWorld::with_provider("create_delay_ms = 600_000\n");
    let server = world.serve().await;
    world.github.order(ModelFault::on("GET", PERMISSION, FaultKind::Held));
    world.label("wren");
    let waited = tokio::time::timeout(WAIT, world.github.until(|github| github.held() == 1)).await;
    assert!(waited.is_ok(), "nothing was asked");
    // What no delivery says, GitHub's answer does.
    world.github.set_door(HookDoor::Closed);
    world.github.unlabel((REPOSITORY, world.number), "wren", "agent");
    world.github.release();
    let sandbox = || async { server.get("/v1/sandboxes").await.json()["data"][0].clone() };
    until("it is not wanted", || async { sandbox().await["wanted"] == "stopped" }).await;
    assert_eq!(sandbox().await["phase"], "creating", "it takes ten minutes to make");
    server.stop().await;
    world.nothing_wrong();
}
