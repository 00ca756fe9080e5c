//! The bytes that programs have written and that are not on any disk yet.

use std::fs;

/// The unwritten bytes of the whole machine; 0 if the kernel does not report them.
pub fn unwritten() -> u64 {
    of(&fs::read_to_string("/proc/meminfo").unwrap_or_default())
}

/// The same from the text of `/proc/meminfo` (`Documentation/filesystems/proc.rst`): dirty bytes
/// and those under writeback.
fn of(meminfo: &str) -> u64 {
    let kb = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    let sum = ["Dirty", "Writeback"].iter().filter_map(|name| kb(name)).sum::<u64>();
    sum.saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_bytes_and_those_under_writeback_count() {
        let text = "Cached: 7 kB\nDirty:  1200 kB\nWriteback:   34 kB\nWritebackTmp:  9 kB\n";
        assert_eq!(of(text), 1_234 * 1024);
        assert_eq!(of(""), 0);
        assert!(fs::read_to_string("/proc/meminfo").is_ok_and(|text| text.contains("\nDirty:")));
    }
}
