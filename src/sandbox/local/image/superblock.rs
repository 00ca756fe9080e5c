//! Reads an image's superblock before it is mounted (the kernel's
//! `Documentation/filesystems/ext4/super.rst`).

use std::os::fd::AsFd;

/// The offset of the superblock, in bytes.
const AT: u64 = 1024;

/// `s_state`: bit 1 means that the kernel has met an error.
const STATE_AT: u64 = AT + 0x3A;
const ERRORS: u8 = 2;

/// `s_feature_incompat`: bit 2 means that the journal has to be replayed.
const INCOMPAT_AT: u64 = AT + 0x60;
const RECOVER: u8 = 4;

/// Whether a power failure cut the image off and its journal has to be replayed. The disk must
/// have the replayed data before the journal is marked empty. True if this can't be read.
pub fn needs_recovery(image: impl AsFd) -> bool {
    byte(image, INCOMPAT_AT).is_none_or(|byte| byte & RECOVER != 0)
}

/// Whether the kernel has met an error in the image that is not repaired yet. False if this can't
/// be read: then it can't be mounted either.
pub fn has_errors(image: impl AsFd) -> bool {
    byte(image, STATE_AT).is_some_and(|byte| byte & ERRORS != 0)
}

/// Both fields are little-endian, and their low bytes suffice.
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
    fn a_cut_off_and_a_damaged_image_are_recognized() {
        let file = tempfile::tempfile().expect("a file");
        assert!(needs_recovery(&file) && !has_errors(&file), "there is no superblock");
        file.set_len(4096).expect("room");
        let set = |at: u64, bits: u8| file.write_all_at(&[bits], at).expect("written");
        // Extents and a type in directories' entries, without and with a journal to be replayed.
        for (bits, is_cut_off) in [(0x42, false), (0x46, true)] {
            set(1024 + 0x60, bits);
            assert_eq!(needs_recovery(&file), is_cut_off);
        }
        // Unmounted in order; with errors; in use when it was cut off; with errors then.
        for (bits, is_damaged) in [(1, false), (3, true), (0, false), (2, true)] {
            set(1024 + 0x3A, bits);
            assert_eq!(has_errors(&file), is_damaged);
        }
    }
}
