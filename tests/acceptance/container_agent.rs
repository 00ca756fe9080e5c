//! An agent in a container outlives the server: the next server follows its process again, and its words
//! are in the conversation once each, whenever the server was killed.

use std::process::Stdio;

use serde_json::Value;

use crate::agent_place::{say, succeeded};
use crate::engine;
use crate::process::{Place, Server, send, until};

/// How many lines the agent says.
const LINES: usize = 80;
/// After how many of them the server is killed, each time.
const KILLED_AFTER: [usize; 3] = [5, 25, 50];

/// An agent that says a line twenty times a second, and forgets what it is asked.
const SCRIPT: &str =
    "cat > /dev/null; for n in $(seq 80); do echo \"line $n\"; sleep 0.05; done; exit 0\n";

/// A server whose agent is bash, which reads the script of the workspace before anything else.
async fn serve(place: &Place) -> Server {
    let mut command = place.serve_command("127.0.0.1:0");
    command.env("ISSUEBOX__TEMPLATES__DEFAULT__AGENT", "scripted").stdout(Stdio::null());
    Server::start(&mut command).await
}

/// What the conversations of a place have, in their order.
fn journal(place: &Place) -> Vec<Value> {
    let mut found = Vec::new();
    let mut directories = vec![place.data()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|ending| ending == "jsonl") {
                let text = std::fs::read_to_string(path).expect("a text");
                found.extend(text.lines().filter_map(|line| serde_json::from_str(line).ok()));
            }
        }
    }
    found
}

/// The lines that the agent has said by now, and the processes that said them.
fn said(place: &Place) -> (Vec<String>, Vec<u64>) {
    let texts: Vec<_> =
        journal(place).into_iter().filter(|event| event["type"] == "text").collect();
    let mut processes: Vec<u64> =
        texts.iter().map(|event| event["process"].as_u64().expect("a number")).collect();
    processes.dedup();
    let words = texts.iter().flat_map(|event| {
        let text = event["text"].as_str().unwrap_or_default();
        text.lines().filter(|line| line.starts_with("line ")).map(str::to_owned).collect::<Vec<_>>()
    });
    (words.collect(), processes)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn an_agent_in_a_container_survives_its_server() {
    let place = Place::docker();
    place.configure(&format!(
        "[providers.docker]\nhost = {host:?}\nimage = {image:?}\npull = \"never\"\n\
         [agents.scripted]\nkind = \"command\"\npath = \"/bin/bash\"\n\
         [templates.default.env]\nBASH_ENV = \"/workspace/agent.sh\"\n",
        host = engine::host(),
        image = engine::image(),
    ));
    let mut server = serve(&place).await;
    let sandbox = server.running("outlives").await;
    let id = sandbox["id"].as_str().expect("an id").to_owned();
    let path = format!("/v1/sandboxes/{id}/files/content?path=agent.sh");
    let written = send(server.request(reqwest::Method::PUT, &path).body(SCRIPT)).await;
    assert_eq!(written.status, 201, "{written:?}");
    let run = say(&server, "outlives", "Say your lines.").await;
    for lines in KILLED_AFTER {
        until("the agent says more", || async { said(&place).0.len() >= lines }).await;
        server.kill().await;
        server = serve(&place).await;
    }
    succeeded(&server, "outlives", &run).await;
    let (lines, processes) = said(&place);
    let expected: Vec<String> = (1..=LINES).map(|n| format!("line {n}")).collect();
    assert_eq!(lines, expected, "each line once, in its order");
    assert_eq!(processes.len(), 1, "no other process was started: {processes:?}");
    assert!(server.delete(&format!("/v1/sandboxes/{id}")).await.is_success());
    let filter = format!("label=issuebox.sandbox={id}");
    until("the container and its workspace are gone", || async {
        let left = ["ps --all --quiet", "volume ls --quiet"].map(|list| {
            let words = list.split(' ').chain(["--filter", &filter]).collect::<Vec<_>>();
            engine::docker_text(&words)
        });
        left.iter().all(String::is_empty)
    })
    .await;
    server.stop().await;
}
