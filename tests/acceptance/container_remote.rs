//! An engine that is reached by TCP: with TLS and certificates on both sides.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use crate::container_place::ContainerPlace;
use crate::engine;
use crate::own_engine::OwnEngine;

/// Makes an authority and what it signs: `ca.pem`, and NAME.pem and NAME-key.pem for the engine and the client.
fn certificates(dir: &Path) {
    let openssl = |line: &str| {
        let output = Command::new("openssl").args(line.split(' ')).current_dir(dir).output();
        let output = output.expect("openssl is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(&format!("req -x509 {key} -days 2 -subj /CN=authority -keyout ca-key.pem -out ca.pem"));
    for (name, more) in [
        ("engine", "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth"),
        ("client", "extendedKeyUsage=clientAuth"),
    ] {
        fs::write(dir.join("more"), more).expect("written");
        openssl(&format!("req {key} -subj /CN={name} -keyout {name}-key.pem -out {name}.csr"));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 2 \
             -extfile more -out {name}.pem"
        ));
    }
}

/// The directory that the server is given: the authority of one set of certificates, the client's of another.
fn tls_dir(authority: &Path, client: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    for (from, name) in [
        (authority.join("ca.pem"), "ca.pem"),
        (client.join("client.pem"), "cert.pem"),
        (client.join("client-key.pem"), "key.pem"),
    ] {
        fs::copy(from, dir.path().join(name)).expect("copied");
    }
    dir
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn an_engine_is_reached_by_tls_with_certificates_of_both_sides_and_not_otherwise() {
    let [ours, others] = [(); 2].map(|()| {
        let dir = tempfile::tempdir().expect("a directory");
        certificates(dir.path());
        dir
    });
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = format!("tcp://{}", free.expect("a free port"));
    let path = |name: &str| ours.path().join(name).display().to_string();
    let mut arguments = vec!["--tlsverify".to_owned(), "--host".to_owned(), address.clone()];
    for (option, file) in [("cacert", "ca.pem"), ("cert", "engine.pem"), ("key", "engine-key.pem")]
    {
        arguments.push(format!("--tls{option}={}", path(file)));
    }
    let own = OwnEngine::start_with(arguments).await;
    let image = engine::image_at(&own.host());
    let place = |dir: &Path| {
        let section =
            format!("host = {address:?}\ntls_dir = {dir:?}\nimage = {image:?}\npull = \"never\"");
        ContainerPlace::with(own.host(), &section)
    };
    let right = tls_dir(ours.path(), ours.path());
    let reached = place(right.path());
    let server = reached.place.serve().await;
    let sandbox = server.running(&reached.issue(0)).await;
    let id = sandbox["id"].as_str().expect("an id");
    // Both ways, and more than one record of TLS.
    let ran = server.sh(id, "head -c 100000 /dev/zero | tr '\\0' x; echo; id -u").await;
    assert_eq!(ran["stdout"], format!("{}\n1000\n", "x".repeat(100_000)));
    server.stop().await;

    let trouble_with = async |dir: &Path| {
        let place = place(dir);
        let server = place.place.serve().await;
        let system = server.get("/v1/system").await.json();
        server.stop().await;
        let trouble = system["data"]["providers"][0]["trouble"].as_str().map(str::to_owned);
        trouble.unwrap_or_else(|| panic!("it must not be reached: {system}"))
    };
    let unknown_client = tls_dir(ours.path(), others.path());
    let unknown_engine = tls_dir(others.path(), ours.path());
    for dir in [unknown_client.path(), unknown_engine.path()] {
        let trouble = trouble_with(dir).await;
        println!("{trouble}");
        assert!(trouble.contains(&address), "{trouble}");
        assert!(trouble.to_lowercase().contains("cert"), "it says what is wrong: {trouble}");
    }
    fs::remove_file(right.path().join("key.pem")).expect("removed");
    let trouble = trouble_with(right.path()).await;
    let missing = format!("cannot read {}", right.path().join("key.pem").display());
    assert!(trouble.contains(&missing), "{trouble}");
}
