//! What an image says of itself in its superblock (the kernel's
//! `Documentation/filesystems/ext4/super.rst`). Read before it is mounted.

use std::os::fd::AsFd;

/// Where the superblock begins, in bytes.
const AT: u64 = 1024;

/// `s_state`: bit 1 says that the kernel has met an error in it.
const STATE_AT: u64 = AT + 0x3A;
const ERRORS: u8 = 2;

/// `s_feature_incompat`: bit 2 says that the journal has to be replayed.
const INCOMPAT_AT: u64 = AT + 0x60;
const RECOVER: u8 = 4;

/// Whether the image was cut off by a power failure and its journal has to be replayed, which the
/// disk must then have before the journal says that it has been. Where that can't be read it counts
/// as so.
pub fn needs_recovery(image: impl AsFd) -> bool {
    byte(image, INCOMPAT_AT).is_none_or(|byte| byte & RECOVER != 0)
}

/// Whether the kernel has met an error in the image, and nobody has repaired it since. One that can't
/// be read can't be mounted either.
pub fn has_errors(image: impl AsFd) -> bool {
    byte(image, STATE_AT).is_some_and(|byte| byte & ERRORS != 0)
}

/// Both fields are little-endian, and their low bytes are all that is needed.
fn byte(image: impl AsFd, at: u64) -> Option<u8> {
    let mut byte = [0];
    let len = rustix::io::pread(image, &mut byte, at).ok()?;
    (len == 1).then_some(byte[0])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn an_image_that_was_cut_off_or_is_damaged_says_so() {
        let file = tempfile::tempfile().expect("a file");
        assert!(needs_recovery(&file) && !has_errors(&file), "there is no superblock");
        file.set_len(4096).expect("room");
        let say = |at: u64, bits: u8| file.write_all_at(&[bits], at).expect("written");
        // Extents and a type in directories' entries, without and with a journal to be replayed.
        for (bits, is_cut_off) in [(0x42, false), (0x46, true)] {
            say(1024 + 0x60, bits);
            assert_eq!(needs_recovery(&file), is_cut_off);
        }
        // Unmounted in order; with errors; in use when it was cut off; with errors then.
        for (bits, is_damaged) in [(1, false), (3, true), (0, false), (2, true)] {
            say(1024 + 0x3A, bits);
            assert_eq!(has_errors(&file), is_damaged);
        }
    }
}
