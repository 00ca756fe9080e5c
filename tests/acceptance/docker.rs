//! A server in a container: Docker's own restrictions each keep local sandboxes from being made,
//! doctor says at which step and which option takes that restriction off, and with both they work.
//!
//! Needs Docker's engine, which `.ci/run` installs and starts; the image is made here, of the
//! program and the libraries it is linked to.

use std::fs;

use crate::engine::{docker, import, libraries};
use crate::process;

const IMAGE: &str = "issuebox-docker-test:latest";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The image, until it is dropped.
struct Image;

impl Image {
    /// Of the program and nothing that it does not need.
    fn make() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let binary = process::built();
        for dir in ["usr/bin", "usr/lib", "etc", "tmp"] {
            fs::create_dir_all(root.path().join(dir)).expect("made");
        }
        for (link, to) in [("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")] {
            fs::create_dir_all(root.path().join(to)).expect("made");
            std::os::unix::fs::symlink(to, root.path().join(link)).expect("made");
        }
        fs::copy(&binary, root.path().join("usr/bin/issuebox")).expect("copied");
        let libraries = libraries(&binary);
        assert!(!libraries.is_empty(), "it is linked to something");
        for library in libraries {
            let to = root.path().join(library.strip_prefix("/").expect("absolute"));
            fs::create_dir_all(to.parent().expect("is in a directory")).expect("made");
            fs::copy(&library, to).expect("copied");
        }
        import(root.path(), IMAGE);
        Self
    }

    /// What doctor says of the local provider in a container that is started so.
    fn doctor(&self, options: &[&str]) -> String {
        let fixed = ["run", "--rm", "--network", "none", "--tmpfs", "/data:mode=1777"];
        let asked = [IMAGE, "/usr/bin/issuebox", "doctor", "--data", "/data"];
        let output = docker(&[&fixed[..], options, &asked].concat());
        let said = text(&output.stdout);
        let lines = said.lines().skip_while(|line| !line.contains("provider local")).take(2);
        let found: Vec<&str> = lines.map(str::trim).collect();
        assert_eq!(found.len(), 2, "{said}\n{}", text(&output.stderr));
        found.join(" ")
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        docker(&["image", "rm", "--force", IMAGE]);
    }
}

#[test]
#[ignore = "needs Docker's engine; run by .ci/run"]
fn docker_s_restrictions_are_named_with_the_option_that_takes_each_off() {
    let image = Image::make();
    let seccomp = ["--security-opt", "seccomp=unconfined"];
    let both = [&seccomp[..], &["--security-opt", "systempaths=unconfined"]].concat();
    for user in ["0:0", "1234:1234"] {
        let doctor = |options: &[&str]| image.doctor(&[&["--user", user], options].concat());
        let default = doctor(&[]);
        assert!(default.starts_with("broken"), "{user}: {default}");
        assert!(default.contains("cannot make a user namespace"), "{user}: {default}");
        assert!(default.contains(&both.join(" ")), "{user}: {default}");
        let half = doctor(&seccomp);
        assert!(half.starts_with("broken"), "{user}: {half}");
        assert!(half.contains("cannot mount /proc"), "{user}: {half}");
        assert!(half.contains("--security-opt systempaths=unconfined"), "{user}: {half}");
        let whole = doctor(&both);
        assert!(whole.contains("created a sandbox and removed it"), "{user}: {whole}");
    }
    // What docker makes of `--user 1234` alone: the group is root's.
    let group = image.doctor(&[&["--user", "1234"], &both[..]].concat());
    assert!(group.starts_with("broken") && group.contains("gid 0 of the host"), "{group}");
    assert!(group.contains("--user UID:GID"), "{group}");
}
