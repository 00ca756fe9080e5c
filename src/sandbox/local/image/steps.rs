//! The steps of mounting an image: which failures pass by themselves, and what to do about the
//! others.

use rustix::io::Errno;

pub const WAIT: &str = "wait for the workspace's image";
pub const OPEN_EXT4: &str = "open the ext4 file system";
pub const OPEN_CONTROL: &str = "open /dev/loop-control";
pub const FIND_DEVICE: &str = "find a free loop device";
pub const OPEN_DEVICE: &str = "open a loop device";
pub const GIVE_TO_DEVICE: &str = "give the workspace's image to a loop device";
pub const MOUNT: &str = "mount the workspace's image";
pub const GIVE_TO_USER: &str = "give the workspace to its user";
pub const SETTLE: &str = "switch the workspace's barriers on";

/// All of them.
const ALL: [&str; 9] = [
    WAIT,
    OPEN_EXT4,
    OPEN_CONTROL,
    FIND_DEVICE,
    OPEN_DEVICE,
    GIVE_TO_DEVICE,
    MOUNT,
    GIVE_TO_USER,
    SETTLE,
];

/// Whether a step of mounting failed temporarily: a busy device or a full host disk. The same
/// errors of other steps can come from a setting.
pub fn is_passing(step: &str, errno: Errno) -> bool {
    ALL.contains(&step) && matches!(errno, Errno::BUSY | Errno::NXIO | Errno::NOSPC)
}

/// Whether a step of mounting failed because the image is damaged.
pub fn is_damage(step: &str, errno: Errno) -> bool {
    match errno {
        Errno::UCLEAN | Errno::BADMSG | Errno::IO => [MOUNT, GIVE_TO_USER].contains(&step),
        Errno::INVAL => step == MOUNT,
        // The kernel met the damage after the mount, and made the file system read-only.
        Errno::ROFS => step == GIVE_TO_USER,
        _ => false,
    }
}

/// What to do about a failed step of mounting; `None` if no remedy is known.
pub fn remedy(step: &str, errno: Errno) -> Option<&'static str> {
    match (step, errno) {
        (FIND_DEVICE, Errno::BUSY | Errno::NOSPC | Errno::NODEV) => Some(
            "Every loop device is in use: see `losetup --list`. Detach those not needed, or \
             load the module with more: `modprobe loop max_loop=256`. The server retries",
        ),
        (OPEN_CONTROL, Errno::NOENT | Errno::NODEV | Errno::NXIO) => Some(
            "This host has no loop devices: run `modprobe loop`. For a container, run it on the \
             host, and start the container with `--device /dev/loop-control` or `--privileged`",
        ),
        (OPEN_DEVICE, Errno::NOENT) => Some(
            "/dev has no node of this loop device, and the server may not make one: start the \
             container with `--privileged`, or with the host's `-v /dev:/dev`",
        ),
        (OPEN_CONTROL | OPEN_DEVICE, Errno::PERM | Errno::ACCESS) => Some(
            "Access to loop devices is denied: start the container with `--privileged`, or allow it \
             the devices `b 7:* rwm` and `c 10:237 rwm`",
        ),
        (GIVE_TO_DEVICE | MOUNT, Errno::NOSPC) => {
            Some("The host's disk is full: free some space. The server retries")
        }
        (OPEN_EXT4, Errno::NODEV) => Some("This kernel has no ext4: load it with `modprobe ext4`"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_failures_and_remedies_are_recognized() {
        for (step, errno, passes, remedy_has) in [
            (FIND_DEVICE, Errno::BUSY, true, "losetup --list"),
            (FIND_DEVICE, Errno::NOSPC, true, "losetup --list"),
            (OPEN_DEVICE, Errno::NXIO, true, ""),
            (GIVE_TO_DEVICE, Errno::BUSY, true, ""),
            (MOUNT, Errno::NOSPC, true, "host's disk is full"),
            (OPEN_CONTROL, Errno::NOENT, false, "modprobe loop"),
            (OPEN_DEVICE, Errno::PERM, false, "--privileged"),
            (OPEN_DEVICE, Errno::NOENT, false, "/dev has no node"),
            (OPEN_EXT4, Errno::NODEV, false, "modprobe ext4"),
            (MOUNT, Errno::PERM, false, ""),
            // `max_user_namespaces` is a setting.
            ("make a user namespace", Errno::NOSPC, false, ""),
        ] {
            assert_eq!(is_passing(step, errno), passes, "{step}: {errno}");
            let found = remedy(step, errno).unwrap_or_default();
            assert!(found.contains(remedy_has), "{step}: {errno}: {found}");
            assert_eq!(found.is_empty(), remedy_has.is_empty(), "{step}: {errno}: {found}");
        }
    }
}
