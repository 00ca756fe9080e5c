//! Images that the server prepares for a user, so that their containers need not be given anything.

use std::fs;

use issuebox::sandbox::Object;
use issuebox::types::{InstanceId, Workload, WorkloadSource};

use crate::docker::{self, docker, docker_text};
use crate::subject::{Subject, WAIT, target};

/// An image of this test's own, which is removed with what was prepared from it.
struct OwnImage(String);

impl OwnImage {
    /// The usual one with a file, and with what `change` says of it.
    fn new(subject: &Subject, file: &str, change: &str) -> Self {
        let image = Self(format!("issuebox-test-{}:latest", subject.name));
        image.is_made_again(file, change);
        image
    }

    /// Gives its name to another image.
    fn is_made_again(&self, file: &str, change: &str) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(file.trim_start_matches('/'));
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        fs::write(&path, self.0.as_bytes()).expect("written");
        let carrier = docker_text(&["create", docker::image(), "true"]);
        docker_text(&["cp", &format!("{}/.", dir.path().display()), &format!("{carrier}:/")]);
        docker_text(&["commit", "--change", change, &carrier, &self.0]);
        docker_text(&["rm", &carrier]);
    }

    /// The names of what was prepared from it.
    fn prepared(&self) -> Vec<String> {
        let label = format!("label=issuebox.prepared-from={}", self.0);
        let names = ["image", "ls", "--filter", &label, "--format", "{{.Repository}}:{{.Tag}}"];
        docker_text(&names).lines().map(str::to_owned).collect()
    }
}

impl Drop for OwnImage {
    fn drop(&mut self) {
        for name in self.prepared().iter().chain([&self.0]) {
            docker(&["image", "rm", "--force", name]);
        }
    }
}

async fn made(subject: &Subject, image: &OwnImage, name: &str, user: Option<&str>) -> Object {
    let mut spec = subject.spec(name, name);
    spec.template.workload = Workload {
        source: Some(WorkloadSource::Image(image.0.clone())),
        user: user.map(str::to_owned),
        ..Workload::default()
    }
    .into();
    subject.provider.lifecycle.create(spec).await.expect("made")
}

/// The image that a container was made from.
fn image_of(object: &Object) -> String {
    docker_text(&["inspect", "--format", "{{.Config.Image}}", object.external_id.as_str()])
}

/// Whose the workspace and the home are, what the workspace has, and what can be written to.
async fn directories(subject: &Subject, object: &Object) -> String {
    let look = "stat -c %u:%g:%a /workspace /home/agent; ls -A /workspace; \
                touch /workspace/x /home/agent/x && echo written";
    let ran = subject.run(&target(object), &["sh", "-c", look]).await;
    String::from_utf8(ran.stdout).expect("text")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn an_image_is_prepared_once_for_each_user() {
    let subject = Subject::docker();
    let image = OwnImage::new(&subject, "/home/agent/.profile", "LABEL of=test");
    let first = made(&subject, &image, "first", None).await;
    let prepared = image.prepared();
    assert_eq!(prepared.len(), 1, "{prepared:?}");
    let second = made(&subject, &image, "second", None).await;
    for object in [&first, &second] {
        assert_eq!(image_of(object), prepared[0]);
        let seen = directories(&subject, object).await;
        assert_eq!(seen, "1000:1000:755\n1000:1000:755\nwritten\n");
    }
    assert_eq!(image.prepared(), prepared);
    let of_another = made(&subject, &image, "other", Some("1234:77")).await;
    let seen = directories(&subject, &of_another).await;
    assert_eq!(seen, "1234:77:755\n1234:77:755\nwritten\n");
    assert_eq!(image.prepared().len(), 2);
    let carriers = ["ps", "--all", "--quiet", "--filter", "label=issuebox.purpose=image"];
    let of_image = format!("ancestor={}", image.0);
    let left = docker_text(
        &[&carriers[..], &["--filter", &of_image, "--filter", "status=created"]].concat(),
    );
    assert_eq!(left, "", "its carriers are removed");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn an_image_that_has_a_workspace_of_its_own_is_used_as_it_is() {
    let subject = Subject::docker();
    for change in ["LABEL of=test", "VOLUME /workspace", "VOLUME /home"] {
        let file = if change.starts_with("LABEL") { "/workspace/file" } else { "/etc/file" };
        let image = OwnImage::new(&subject, file, change);
        let object = made(&subject, &image, "own", None).await;
        assert_eq!((image_of(&object), image.prepared()), (image.0.clone(), vec![]), "{change}");
        let seen = directories(&subject, &object).await;
        assert_eq!(seen, "1000:1000:755\n1000:1000:755\nwritten\n", "{change}");
        subject.remove(&object, true).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn what_was_prepared_from_an_older_image_goes_once_no_container_has_it() {
    let subject = Subject::docker();
    let image = OwnImage::new(&subject, "/etc/version", "LABEL version=1");
    let of_older = made(&subject, &image, "older", None).await;
    let older = image.prepared();
    image.is_made_again("/etc/version", "LABEL version=2");
    let of_newer = made(&subject, &image, "newer", None).await;
    let newer = image_of(&of_newer);
    assert_eq!(older, [image_of(&of_older)]);
    assert_ne!(older[0], newer);
    // Each list removes what is left over, after its answer.
    let instance = InstanceId::trusted("of-nothing".to_owned());
    subject.provider.lifecycle.list(instance.clone()).await.expect("listed");
    assert_eq!(image.prepared().len(), 2, "a container has the older one");
    subject.remove(&of_older, true).await;
    let is_removed = async {
        while image.prepared() != [newer.clone()] {
            subject.provider.lifecycle.list(instance.clone()).await.expect("listed");
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT, is_removed).await.expect("the older one is removed");
    // A container that was made of the newer one goes on.
    assert_eq!(directories(&subject, &of_newer).await, "1000:1000:755\n1000:1000:755\nwritten\n");
    // Removed by hand, it is prepared again.
    subject.remove(&of_newer, true).await;
    docker_text(&["image", "rm", &newer]);
    let again = made(&subject, &image, "again", None).await;
    assert_eq!(image_of(&again), newer);
}
