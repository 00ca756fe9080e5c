//! The demo with containers plays what it plays with local sandboxes.

use crate::engine;
use crate::process::Place;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker's engine; run by .ci/run"]
async fn the_demo_plays_its_story_in_containers() {
    let place = Place::docker();
    let temporary = tempfile::tempdir().expect("a directory");
    let arguments = ["demo", "--exit", "--provider", "docker", "--image", engine::demo_image()];
    let mut command = place.command(&arguments);
    command.env("DOCKER_HOST", engine::host()).env("TMPDIR", temporary.path());
    // Of this machine, for the git behind the in-memory GitHub.
    command.env("PATH", "/usr/bin:/bin");
    let ended = command.output().await.expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (shown, complaints) = (text(&ended.stdout), text(&ended.stderr));
    assert_eq!((ended.status.code(), complaints.as_str()), (Some(0), ""), "{shown}");
    assert!(shown.contains("In all 1 reaction, 1 comment and 1 pull request."), "{shown}");
    assert!(shown.contains("its provider is docker."), "{shown}");
    assert!(shown.contains("each exactly one"), "{shown}");
    let left = std::fs::read_dir(temporary.path()).expect("a directory").count();
    assert_eq!(left, 0, "the demo's data must be gone");
    let ours = "name=^/?claude-issue-[0-9]+$";
    assert_eq!(engine::docker_text(&["ps", "--all", "--quiet", "--filter", ours]), "");
}
