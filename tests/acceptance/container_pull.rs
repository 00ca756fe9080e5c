//! Images that the engine lacks are pulled, from registries that want a login, too.

use serde_json::json;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::container_place::ContainerPlace;
use crate::engine;
use crate::process::until;
use crate::registry::Registry;

const PASSWORD: &str = "a-password-of-the-registry";

/// Removes an image from the engine when the test ends.
struct Pulled(String);

impl Drop for Pulled {
    fn drop(&mut self) {
        engine::docker(&["rmi", &self.0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn a_missing_image_is_pulled_with_the_login_of_its_registry() {
    let registry = Registry::start(engine::image(), PASSWORD);
    let image = Pulled(format!("{}/private/tool:1", registry.host));
    let logins = tempfile::NamedTempFile::new().expect("a file");
    let log_in = |password: &str| {
        let auth = STANDARD.encode(format!("octo:{password}"));
        let text = json!({"auths": {&registry.host: {"auth": auth}}}).to_string();
        std::fs::write(logins.path(), text).expect("written");
    };
    log_in("an-old-password");
    let section = format!("image = {:?}\nregistry_auth = {:?}", image.0, logins.path());
    let host = engine::host();
    let place = ContainerPlace::with(host.clone(), &format!("host = {host:?}\n{section}"));
    let server = place.place.serve().await;
    let body = json!({"issueId": place.issue(0)});
    let failed = server.post("/v1/sandboxes?wait=60", &body).await.json();
    assert_eq!(failed["data"]["phase"], "failed", "{failed}");
    let message = failed["data"]["failure"]["message"].as_str().expect("a message");
    assert!(message.contains(&format!("docker pull {}", image.0)), "what to do: {message}");
    assert!(message.contains("unauthorized"), "why: {message}");
    // A renewed login counts without a restart.
    log_in(PASSWORD);
    let again = json!({"issueId": place.issue(0), "retry": true});
    let answer = server.post("/v1/sandboxes?wait=120", &again).await.json();
    assert_eq!(answer["data"]["phase"], "running", "{answer}");
    let id = answer["data"]["id"].as_str().expect("an id");
    assert_eq!(server.sh(id, "echo works").await["stdout"], "works\n");
    let logs = format!("/v1/sandboxes/{id}/logs");
    let pulled = format!("pulled the image {}", image.0);
    until("the end of the pull in the sandbox's log", || async {
        server.get(&logs).await.text.contains(&pulled)
    })
    .await;
    let (status, _, log) = server.stop().await;
    assert!(status.success());
    for secret in [PASSWORD, "an-old-password", &STANDARD.encode(format!("octo:{PASSWORD}"))] {
        assert!(!log.contains(secret) && !message.contains(secret), "{log}");
    }
}
