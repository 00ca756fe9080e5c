//! What is put into a workspace from outside: that it keeps to the sandbox's limits, and leaves
//! nothing of its own behind.

use bytes::Bytes;
use issuebox::sandbox::{SandboxProvider, WorkError};
use issuebox::types::Resources;

use super::files::unpack;
use crate::common::{Local, Sandbox, spec, target};

/// A sandbox whose files may have 16 MiB.
async fn small<'a>(local: &'a Local, name: &str) -> Sandbox<'a> {
    let mut spec = spec(name, name);
    spec.template.resources = Resources { disk_mb: 16, ..spec.template.resources };
    let object = local.provider.create(spec).await.expect("made");
    Sandbox { provider: &local.provider, target: target(&object) }
}

/// An archive of one file of zeros.
fn archive_of_zeros(len: usize) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_size(len as u64);
    header.set_mode(0o644);
    let mut archive = tar::Builder::new(Vec::new());
    archive.append_data(&mut header, "packed", &vec![0; len][..]).expect("packed");
    archive.into_inner().expect("whole")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_no_longer_than_a_command_could_make_it() {
    const TOO_LONG: usize = (16 << 20) + 1;
    let Some(local) = Local::new().await else { return };
    let sandbox = small(&local, "long").await;
    sandbox.put(b"file", Bytes::from_static(b"old")).await;
    let named = "a file may not be longer than 16 MB, the disk limit";
    let error = sandbox.write_bytes(b"file", Bytes::from(vec![0; TOO_LONG])).await;
    assert_eq!(error, Err(WorkError::Refused(named.into())));
    let Err(WorkError::Refused(why)) = unpack(&sandbox, b"", archive_of_zeros(TOO_LONG)).await
    else {
        panic!("must be refused");
    };
    // Where the disk as a whole is limited, that is met a little earlier.
    let holds = local.provider.health().await.isolation.limits;
    let is_whole = holds.contains(&("disk", "enforced"));
    let reason = if is_whole { "no space left on device" } else { named };
    assert!(why.contains(reason), "{why}");
    assert_eq!(sandbox.sh("ls -A; cat file").await, "file\nold", "nothing of either is left");
}
