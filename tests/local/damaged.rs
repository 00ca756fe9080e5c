//! Images that are damaged: what can be repaired is before they are mounted, and of what can't be
//! somebody is told.

use std::os::unix::fs::{FileExt, MetadataExt};
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

/// Changes an image by debugfs, or tells what that finds.
fn debug(image: &Path, request: &str) -> String {
    let ended = tool("debugfs", &["-w", "-R", request], image);
    assert!(ended.status.success(), "{request}: {ended:?}");
    String::from_utf8_lossy(&ended.stdout).trim().to_owned()
}

fn is_whole(image: &Path) -> bool {
    tool("e2fsck", &["-f", "-n"], image).status.success()
}

/// A sandbox that is stopped and has a file, and where its image is.
async fn stopped<'a>(local: &'a Local, name: &str) -> (Sandbox<'a>, PathBuf) {
    let mut spec = spec(name, name);
    spec.template.resources = Resources { disk_mb: DISK_MB, ..spec.template.resources };
    let object = local.provider.create(spec).await.expect("made");
    let sandbox = Sandbox { provider: &local.provider, target: target(&object) };
    sandbox.sh("mkdir d; echo mine > d/kept").await;
    local.provider.stop(call(&sandbox.target)).await.expect("stopped");
    (sandbox, local.dir.path().join("objects").join(name).join("workspace.ext4"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, loop devices and debugfs; run by .ci/run"]
async fn an_image_with_errors_is_repaired_before_it_is_mounted() {
    let Some(local) = Local::new().await else { return };
    let (sandbox, image) = stopped(&local, "errors").await;
    // Blocks that nobody has count as taken.
    debug(&image, "setb 6000 20");
    debug(&image, "set_super_value state 2");
    assert!(!is_whole(&image));
    local.provider.start(call(&sandbox.target)).await.expect("started");
    assert_eq!(sandbox.sh("cat d/kept; echo more >> d/kept").await, "mine\n");
    local.provider.stop(call(&sandbox.target)).await.expect("stopped");
    assert!(is_whole(&image), "it was repaired");
    assert_eq!(image.metadata().expect("there").uid(), 0, "and is nobody else's");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, loop devices and debugfs; run by .ci/run"]
async fn an_image_that_the_kernel_refuses_is_repaired_and_mounted() {
    let Some(local) = Local::new().await else { return };
    let (sandbox, image) = stopped(&local, "journal").await;
    // The journal's own superblock.
    let block: u64 = debug(&image, "bmap <8> 0").parse().expect("a block");
    let file = std::fs::File::options().write(true).open(&image).expect("opened");
    file.write_all_at(&[0; 1024], block * 1024).expect("written");
    drop(file);
    local.provider.start(call(&sandbox.target)).await.expect("started");
    assert_eq!(sandbox.sh("cat d/kept; touch new").await, "mine\n");
    local.provider.stop(call(&sandbox.target)).await.expect("stopped");
    assert!(is_whole(&image));
}

/// The power fails right after a workspace was given to its user, by a transaction whose parts were on
/// their way to the disk in no order: one of them is not there.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, loop devices and debugfs; run by .ci/run"]
async fn a_workspace_that_lost_power_in_its_first_moments_is_found_again() {
    let Some(local) = Local::new().await else { return };
    // Nothing; the journal's description of the transaction, a block of it, and what comes behind.
    for lost in [None, Some(1), Some(2), Some(3), Some(5)] {
        let name = format!("power-{}", lost.unwrap_or(0));
        let mut spec = spec(&name, &name);
        spec.template.resources = Resources { disk_mb: DISK_MB, ..spec.template.resources };
        let object = local.provider.create(spec).await.expect("made");
        let sandbox = Sandbox { provider: &local.provider, target: target(&object) };
        let image = local.dir.path().join("objects").join(&name).join("workspace.ext4");
        let cut_off = local.dir.path().join("cut-off");
        std::fs::copy(&image, &cut_off).expect("as it was in that moment");
        local.provider.stop(call(&sandbox.target)).await.expect("stopped");
        if let Some(lost) = lost {
            let block = debug(&cut_off, &format!("bmap <8> {lost}")).parse::<u64>().expect("one");
            let file = std::fs::File::options().write(true).open(&cut_off).expect("opened");
            file.write_all_at(&[0; 1024], block * 1024).expect("written");
        }
        std::fs::rename(cut_off, &image).expect("put in its place");
        local.provider.start(call(&sandbox.target)).await.expect("it is found again");
        sandbox.sh("echo mine > new && sync new").await;
        local.provider.stop(call(&sandbox.target)).await.expect("stopped");
        assert!(is_whole(&image), "{lost:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, loop devices and debugfs; run by .ci/run"]
async fn of_an_image_that_is_not_repaired_somebody_is_told_and_nothing_is_deleted() {
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
    for _ in 0..2 {
        let Err(ProviderError::Refused(why)) = local.provider.start(call(&sandbox.target)).await
        else {
            panic!("it can't start, and trying again does not help");
        };
        assert!(why.starts_with("the workspace's image is damaged, and e2fsck could not"), "{why}");
        assert!(why.contains("RUN fsck MANUALLY") && why.ends_with("Nothing was deleted"), "{why}");
    }
    assert_eq!(image.metadata().expect("there").uid(), 0);
    let is_object = |file: &String| file.contains("/objects/");
    assert!(!attached(local.dir.path()).iter().any(is_object), "no device is left");
    // Others are not concerned, and it can be deleted.
    let other = local.sandbox("other").await;
    assert_eq!(other.sh("echo fine").await, "fine\n");
    while local.provider.delete(call(&sandbox.target)).await.is_ok() {}
    assert!(!image.exists());
}
