//! Loop devices: a file as a block device while it is mounted.

#![allow(unsafe_code, reason = "loop devices are configured by ioctl")]

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::node::{Node, Numbers};
use super::{ImageError, NameStep, steps};

/// `LOOP_CTL_GET_FREE` of `<linux/loop.h>`.
const GET_FREE: libc::Ioctl = 0x4C82;

/// `LOOP_CONFIGURE` of `<linux/loop.h>`, since Linux 5.8.
const CONFIGURE: libc::Ioctl = 0x4C0A;

/// `LOOP_SET_DIRECT_IO` of `<linux/loop.h>`.
const SET_DIRECT_IO: libc::Ioctl = 0x4C08;

/// `LO_FLAGS_AUTOCLEAR`: the device releases its file at its last close.
const AUTOCLEAR: u32 = 4;

/// The major number of every loop device.
const LOOP_MAJOR: u32 = 7;

/// `/dev/loop-control`.
const CONTROL: Numbers = Numbers { kind: FileType::CharacterDevice, major: 10, minor: 237 };

/// How often to try again when another process takes the free device first. Each lost race means
/// that one of them got a device, so this exceeds the number of concurrent starts.
const ATTEMPTS_MAX: usize = 1_000;

/// The kernel's `struct loop_config`, with its `struct loop_info64` in the middle.
#[repr(C)]
struct LoopConfig {
    file: u32,
    block_size: u32,
    device_inode_rdevice_offset_limit: [u64; 5],
    number: u32,
    encryption: [u32; 2],
    flags: u32,
    names_and_key: [u8; 64 + 64 + 32],
    init: [u64; 2],
    reserved: [u64; 8],
}

/// A device with a file. Dropping it releases the file, unless it is mounted by then.
pub struct Device(Node);

impl Device {
    /// Its path, for this process.
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// Bypasses the page cache of the backing file, since the file system on the device has a
    /// cache itself. Waits for the disk.
    ///
    /// # Errors
    /// `INVAL` if the file system of the file does not support it.
    pub fn bypass_cache(&self) -> Result<(), Errno> {
        let on: libc::c_ulong = 1;
        // SAFETY: the argument is a number.
        checked(unsafe { libc::ioctl(self.0.open.as_raw_fd(), SET_DIRECT_IO, on) })
    }
}

/// Attaches a file to a free loop device.
pub fn attach(image: &OwnedFd) -> Result<Device, ImageError> {
    let control = Node::open("loop-control", CONTROL).step(steps::OPEN_CONTROL)?;
    for _ in 0..ATTEMPTS_MAX {
        // SAFETY: this request takes no argument.
        let number = unsafe { libc::ioctl(control.open.as_raw_fd(), GET_FREE) };
        checked(number).step(steps::FIND_DEVICE)?;
        let minor = number.unsigned_abs();
        let numbers = Numbers { kind: FileType::BlockDevice, major: LOOP_MAJOR, minor };
        let node = Node::open(&format!("loop{number}"), numbers).step(steps::OPEN_DEVICE)?;
        let config = LoopConfig {
            file: u32::try_from(image.as_raw_fd()).expect("descriptors are not negative"),
            block_size: 0,
            device_inode_rdevice_offset_limit: [0; 5],
            number: 0,
            encryption: [0; 2],
            flags: AUTOCLEAR,
            names_and_key: [0; 160],
            init: [0; 2],
            reserved: [0; 8],
        };
        // SAFETY: the request reads one `struct loop_config`, which outlives the call.
        let given = unsafe { libc::ioctl(node.open.as_raw_fd(), CONFIGURE, &raw const config) };
        match checked(given) {
            Ok(()) => return Ok(Device(node)),
            Err(Errno::BUSY) => {}
            Err(errno) => return Err(errno).step(steps::GIVE_TO_DEVICE),
        }
    }
    Err(Errno::BUSY).step(steps::FIND_DEVICE)
}

fn checked(result: libc::c_int) -> Result<(), Errno> {
    if result != -1 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
