//! The gateway to the models from inside: each sandbox has a socket of its own, by which the server
//! knows it, whatever its network.

use async_trait::async_trait;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response};
use issuebox::models::{LateModelGateway, ModelGateway, ModelHttpBody};
use issuebox::sandbox::Lifecycle;
use issuebox::types::{Network, SandboxId};

use crate::common::{Ended, Local, Sandbox, call, request, spec, target};

/// Answers with the sandbox that asks, and the path.
struct Echo;

#[async_trait]
impl ModelGateway for Echo {
    async fn answer(
        &self,
        sandbox: &SandboxId,
        request: Request<ModelHttpBody>,
    ) -> Response<ModelHttpBody> {
        let text = format!("this is {sandbox} at {}\n", request.uri().path());
        Response::new(Full::from(text).map_err(|never| match never {}).boxed_unsync())
    }
}

async fn local() -> (LateModelGateway, Option<Local>) {
    let gateway = LateModelGateway::default();
    let given = gateway.clone();
    (gateway, Local::with(|config| config.models = given).await)
}

async fn made<'a>(local: &'a Local, name: &str, network: Network) -> Sandbox<'a> {
    let mut spec = spec(name, name);
    spec.template.network = network;
    let object = local.provider.create(spec).await.expect("made");
    Sandbox { provider: &local.provider, target: target(&object) }
}

/// Asks the gateway from inside.
async fn ask(sandbox: &Sandbox<'_>) -> Ended {
    let script = "exec 3<>/dev/tcp/127.0.0.1/3129 || exit 9
                  printf 'GET /x HTTP/1.1\\r\\nHost: other\\r\\nConnection: close\\r\\n\\r\\n' >&3
                  cat <&3";
    sandbox.run(request(&["bash", "-c", script])).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_sandbox_is_known_by_its_own_socket_whatever_it_reaches() {
    let (gateway, local) = local().await;
    let Some(local) = local else { return };
    let none = made(&local, "none", Network::None).await;
    let starts = ask(&none).await;
    assert!(starts.stdout.starts_with("HTTP/1.1 529"), "before there is a gateway: {starts:?}");
    gateway.set(Some(std::sync::Arc::new(Echo)));
    let allow = made(&local, "allow", Network::Allow { hosts: vec![], private: vec![] }).await;
    let full = made(&local, "full", Network::Full { private: vec![] }).await;
    for (sandbox, name) in [(&none, "none"), (&allow, "allow"), (&full, "full")] {
        let answer = ask(sandbox).await;
        assert!(answer.stdout.starts_with("HTTP/1.1 200"), "{answer:?}");
        assert!(answer.stdout.ends_with(&format!("this is {name} at /x\n")), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_the_hosts_network_there_is_no_socket() {
    let (gateway, local) = local().await;
    let Some(local) = local else { return };
    gateway.set(Some(std::sync::Arc::new(Echo)));
    let host = made(&local, "host", Network::Host).await;
    let answer = ask(&host).await;
    assert!(!answer.stdout.contains("this is"), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_was_stopped_and_one_from_the_pool_have_their_socket() {
    let (gateway, local) = local().await;
    let Some(local) = local else { return };
    gateway.set(Some(std::sync::Arc::new(Echo)));
    // The second is taken from the pool, which is filled with what the first was.
    for name in ["first", "second", "third"] {
        let sandbox = local.sandbox(name).await;
        let expected = format!("this is {name} at /x\n");
        assert!(ask(&sandbox).await.stdout.ends_with(&expected), "{name}");
        local.provider.stop(call(&sandbox.target)).await.expect("stopped");
        local.provider.start(call(&sandbox.target)).await.expect("started");
        assert!(ask(&sandbox).await.stdout.ends_with(&expected), "{name}, again");
    }
}
