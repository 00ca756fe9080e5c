//! An agent for tests: bash, which reads a script of the workspace before anything else.
//!
//! Its script reads what it is asked, and says what stands behind `say` in it. With the word `linger` it
//! goes on until it is ended.

use crate::process::{Place, Server};

/// The configuration of an agent `scripted`, and a variable by which bash begins with the script.
const SETTINGS: &str = "[agents.scripted]\nkind = \"command\"\npath = \"/bin/bash\"\n\
    [templates.default.env]\nBASH_ENV = \"/workspace/agent.sh\"\n";

const SCRIPT: &str = r#"asked=$(cat)
case $asked in
*linger*) echo "It goes on."; exec sleep 1000 ;;
*fail*) echo "It cannot."; exit 3 ;;
esac
echo "First words."
echo '{"type":"toolCall","id":"t1","tool":"Bash","title":"cargo test","input":{"command":"cargo test"}}'
cat /workspace/output
printf '%s\n' "$asked" | sed -n 's/^say //p'
exit 0
"#;

/// A server whose sandboxes have that agent.
pub async fn serve(place: &Place) -> Server {
    serve_with(place, "").await
}

/// The same, with these lines at the end of the configuration.
pub async fn serve_with(place: &Place, more: &str) -> Server {
    place.configure(&format!("{SETTINGS}{more}"));
    let mut command = place.serve_command("127.0.0.1:0");
    command.env("ISSUEBOX__TEMPLATES__DEFAULT__AGENT", "scripted");
    Server::start(command.stdout(std::process::Stdio::null())).await
}

/// Gives the agent of a sandbox its script, and the event of a tool's output that it prints.
pub async fn teach(server: &Server, sandbox: &str, output: &str) {
    let event = serde_json::json!({
        "type": "toolResult", "id": "t1", "text": output, "isError": false,
    });
    for (path, content) in [("agent.sh", SCRIPT.to_owned()), ("output", format!("{event}\n"))] {
        let path = format!("/v1/sandboxes/{sandbox}/files/content?path={path}");
        let request = server.request(reqwest::Method::PUT, &path).body(content);
        let answer = crate::process::send(request).await;
        assert_eq!(answer.status, 201, "{answer:?}");
    }
}
