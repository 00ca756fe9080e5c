//! Disk space to keep free.

/// How much of a file system to keep free, as configured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Reserve {
    /// A twentieth of the disk; at most 4 GB, which is more than is ever written between two checks; at
    /// least 1 GB, which a burst from memory can write, or a quarter of a small disk.
    #[default]
    Auto,
    /// A percentage of the whole.
    Percent(f64),
    /// An amount in MiB; 0 keeps nothing free.
    Megabytes(u64),
}

/// Most that `auto` keeps free, in bytes.
const AUTO_MAX: u64 = 4 << 30;

/// Least that `auto` keeps free, in bytes: programs write some 5 GB a second into memory, so half of this
/// is filled within a tenth of a second.
const AUTO_MIN: u64 = 1 << 30;

/// Largest fraction of the disk that `auto` keeps free, so that a small disk stays usable.
const AUTO_MAX_PART: u64 = 4;

/// Largest percentage: with more the disk would be of no use.
const PERCENT_MAX: f64 = 90.0;

/// Largest amount, in MiB: more than any disk of today has.
const MEGABYTES_MAX: u64 = 1 << 30;

impl Reserve {
    /// Parses `auto`, `5%`, `4096 MB` or `4 GB`.
    ///
    /// # Errors
    /// What is needed instead: "must be …".
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let number = |unit| text.strip_suffix(unit).map(str::trim_end);
        let whole = |text: &str, factor: u64| {
            let megabytes = text.parse::<u64>().ok()?.checked_mul(factor)?;
            (megabytes <= MEGABYTES_MAX).then_some(Self::Megabytes(megabytes))
        };
        let parsed = if text == "auto" {
            Some(Self::Auto)
        } else if let Some(percent) = number("%") {
            let percent = percent.parse().ok();
            percent.filter(|percent| (0.0..=PERCENT_MAX).contains(percent)).map(Self::Percent)
        } else if let Some(megabytes) = number("MB") {
            whole(megabytes, 1)
        } else if let Some(gigabytes) = number("GB") {
            whole(gigabytes, 1024)
        } else {
            None
        };
        parsed.ok_or_else(|| {
                "must be \"auto\", a percentage up to \"90%\", or a size such as \"4096 MB\" or \"4 GB\""
                .to_owned()
        })
    }

    /// The bytes to keep free on a file system of this size in bytes.
    pub fn of(self, size: u64) -> u64 {
        match self {
            Self::Auto => (size / 20).clamp(AUTO_MIN, AUTO_MAX).min(size / AUTO_MAX_PART),
            Self::Percent(percent) => (size as f64 * percent / 100.0) as u64,
            Self::Megabytes(megabytes) => megabytes.saturating_mul(1 << 20),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_is_a_percentage_or_a_size_and_nothing_else() {
        const GB: u64 = 1 << 30;
        for (text, of_100_gb) in [
            ("auto", 4 * GB),
            ("5%", 5 * GB),
            (" 0.5 % ", GB / 2),
            ("0%", 0),
            ("4096 MB", 4 * GB),
            ("3GB", 3 * GB),
            ("0 MB", 0),
        ] {
            let reserve = Reserve::parse(text).expect(text);
            assert_eq!(reserve.of(100 * GB), of_100_gb, "{text}");
        }
        for (size, kept) in
            [(0, 0), (2, GB / 2), (4, GB), (5, GB), (20, GB), (40, 2 * GB), (80, 4 * GB)]
        {
            assert_eq!(Reserve::Auto.of(size * GB), kept, "of {size} GB");
        }
        for text in
            ["", "5", "MB", "-1 MB", "91%", "NaN%", "-1%", "5 TB", "99999999999 GB", "1.5 GB"]
        {
            assert!(Reserve::parse(text).is_err_and(|why| why.starts_with("must be")), "{text:?}");
        }
    }
}
