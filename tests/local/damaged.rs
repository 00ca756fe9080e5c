//! Damaged workspace images: a start is refused with the command that repairs the image, nothing is
//! deleted, and a start after the operator's repair works.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use issuebox::sandbox::{Lifecycle, ProviderError};
use issuebox::types::Resources;

use crate::common::{Local, Sandbox, attached, call, spec, target};

/// The size of the disks here, in MiB.
const DISK_MB: u64 = 64;

fn tool(name: &str, args: &[&str], image: &Path) -> Output {
    let mut command = Command::new(name);
    command.env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin").args(args).arg(image);
    command.output().unwrap_or_else(|error| panic!("{name}, of e2fsprogs: {error}"))
}

/// Runs a debugfs request on an image and returns its output.
fn debug(image: &Path, request: &str) -> String {
    let ended = tool("debugfs", &["-w", "-R", request], image);
    assert!(ended.status.success(), "{request}: {ended:?}");
    String::from_utf8_lossy(&ended.stdout).trim().to_owned()
}

fn is_whole(image: &Path) -> bool {
    tool("e2fsck", &["-f", "-n"], image).status.success()
}

/// A stopped sandbox with one file, and its image's path.
async fn stopped<'a>(local: &'a Local, name: &str) -> (Sandbox<'a>, PathBuf) {
    let mut spec = spec(name, name);
    spec.template.resources = Resources { disk_mb: DISK_MB, ..spec.template.resources };
    let object = local.provider.create(spec).await.expect("made");
    let sandbox = Sandbox { provider: &local.provider, target: target(&object) };
    sandbox.sh("mkdir d; echo mine > d/kept").await;
    local.provider.stop(call(&sandbox.target)).await.expect("stopped");
    (sandbox, local.dir.path().join("objects").join(name).join("workspace.ext4"))
}

/// Starts a sandbox with a damaged image twice: both are refused, and the image stays as it is.
async fn assert_refused(sandbox: &Sandbox<'_>, image: &Path) {
    let before = std::fs::read(image).expect("read");
    for _ in 0..2 {
        let started = sandbox.provider.start(call(&sandbox.target)).await;
        let Err(ProviderError::Refused(why)) = started else {
            panic!("must be refused, and not tried again: {started:?}");
        };
        let named =
            format!("cannot mount the workspace's image {}: it is damaged", image.display());
        assert!(why.starts_with(&named), "{why}");
        assert!(why.contains(&format!("`e2fsck -f -y {}`", image.display())), "{why}");
        assert!(why.ends_with("see docs/providers/local.md"), "{why}");
    }
    assert!(std::fs::read(image).expect("read") == before, "the image was changed");
    let is_object = |file: &String| file.contains("/objects/");
    let objects = image.ancestors().nth(3).expect("the provider's directory");
    assert!(!attached(objects).iter().any(is_object), "a loop device is left");
}

/// Does what the refusal says: 0, 1 and 2 mean that the image is clean now.
fn repair(image: &Path) {
    let ended = tool("e2fsck", &["-f", "-y"], image);
    assert!(ended.status.code().is_some_and(|code| code <= 2), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, loop devices and debugfs; run by .ci/run"]
async fn an_image_with_recorded_errors_is_refused_until_it_is_repaired() {
    let Some(local) = Local::new().await else { return };
    let (sandbox, image) = stopped(&local, "errors").await;
    // Free blocks are marked as used.
    debug(&image, "setb 6000 20");
    debug(&image, "set_super_value state 2");
    assert!(!is_whole(&image));
    assert_refused(&sandbox, &image).await;
    repair(&image);
    local.provider.start(call(&sandbox.target)).await.expect("started");
    assert_eq!(sandbox.sh("cat d/kept; echo more >> d/kept").await, "mine\n");
    local.provider.stop(call(&sandbox.target)).await.expect("stopped");
    assert!(is_whole(&image));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, loop devices and debugfs; run by .ci/run"]
async fn an_image_that_the_kernel_refuses_is_refused_until_it_is_repaired() {
    let Some(local) = Local::new().await else { return };
    let (sandbox, image) = stopped(&local, "journal").await;
    // The journal's own superblock.
    let block: u64 = debug(&image, "bmap <8> 0").parse().expect("a block");
    let file = std::fs::File::options().write(true).open(&image).expect("opened");
    file.write_all_at(&[0; 1024], block * 1024).expect("written");
    drop(file);
    assert_refused(&sandbox, &image).await;
    repair(&image);
    local.provider.start(call(&sandbox.target)).await.expect("started");
    assert_eq!(sandbox.sh("cat d/kept; touch new").await, "mine\n");
    local.provider.stop(call(&sandbox.target)).await.expect("stopped");
    assert!(is_whole(&image));
}

/// The power fails right after a workspace was given to its user, while the blocks of that transaction
/// reach the disk in any order: one of them is missing.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, loop devices and debugfs; run by .ci/run"]
async fn a_workspace_that_lost_power_in_its_first_moments_starts_again() {
    let Some(local) = Local::new().await else { return };
    // Nothing; the journal's descriptor of the transaction, one of its blocks, and the blocks behind it.
    for lost in [None, Some(1), Some(2), Some(3), Some(5)] {
        let name = format!("power-{}", lost.unwrap_or(0));
        let mut spec = spec(&name, &name);
        spec.template.resources = Resources { disk_mb: DISK_MB, ..spec.template.resources };
        let object = local.provider.create(spec).await.expect("made");
        let sandbox = Sandbox { provider: &local.provider, target: target(&object) };
        let image = local.dir.path().join("objects").join(&name).join("workspace.ext4");
        let cut_off = local.dir.path().join("cut-off");
        std::fs::copy(&image, &cut_off).expect("copied while it is mounted");
        local.provider.stop(call(&sandbox.target)).await.expect("stopped");
        if let Some(lost) = lost {
            let block = debug(&cut_off, &format!("bmap <8> {lost}")).parse::<u64>().expect("one");
            let file = std::fs::File::options().write(true).open(&cut_off).expect("opened");
            file.write_all_at(&[0; 1024], block * 1024).expect("written");
        }
        std::fs::rename(cut_off, &image).expect("replaced");
        local.provider.start(call(&sandbox.target)).await.expect("started");
        sandbox.sh("echo mine > new && sync new").await;
        local.provider.stop(call(&sandbox.target)).await.expect("stopped");
        assert!(is_whole(&image), "{lost:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, loop devices and debugfs; run by .ci/run"]
async fn a_sandbox_with_a_damaged_image_can_be_deleted_and_others_are_not_affected() {
    let Some(local) = Local::new().await else { return };
    let (sandbox, image) = stopped(&local, "lost").await;
    // The first inodes, the top directory's among them.
    let seen = tool("dumpe2fs", &[], &image);
    let seen = String::from_utf8_lossy(&seen.stdout);
    let (_, table) = seen.split_once("Inode table at ").expect("a table");
    let digits: String = table.chars().take_while(char::is_ascii_digit).collect();
    let block: u64 = digits.parse().expect("a block");
    let file = std::fs::File::options().write(true).open(&image).expect("opened");
    file.write_all_at(&[0; 4096], block * 1024).expect("written");
    drop(file);
    // The kernel meets the damage after the mount, and records it in the image.
    let started = local.provider.start(call(&sandbox.target)).await;
    assert!(matches!(started, Err(ProviderError::Refused(_))), "{started:?}");
    assert_refused(&sandbox, &image).await;
    let other = local.sandbox("other").await;
    assert_eq!(other.sh("echo fine").await, "fine\n");
    while local.provider.delete(call(&sandbox.target)).await.is_ok() {}
    assert!(!image.exists());
}
