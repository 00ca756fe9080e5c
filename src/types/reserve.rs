//! Room that is kept free on a file system.

/// How much of a file system is kept free, as it is configured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Reserve {
    /// A twentieth, but not more than is ever filled between two looks at it, 4 GB, and not less than
    /// memory alone can take of it within some of them, 1 GB, or a quarter where it is that small.
    #[default]
    Auto,
    /// A part of the whole, in percent.
    Percent(f64),
    /// So much, in MiB; 0 keeps nothing free.
    Megabytes(u64),
}

/// The most that is kept free where nothing is configured, in bytes.
const AUTO_MAX: u64 = 4 << 30;

/// The least that is kept free where nothing is configured, in bytes: programs write some 5 GB a second
/// into memory, so that half of this is filled within a tenth of a second.
const AUTO_MIN: u64 = 1 << 30;

/// The most that is kept free where nothing is configured, as a part of the disk: a small one is to be
/// of use.
const AUTO_MAX_PART: u64 = 4;

/// The most that can be kept free, in percent: with more there would be no use in the disk.
const PERCENT_MAX: f64 = 90.0;

/// The most that can be kept free, in MiB: more than fits any disk of today.
const MEGABYTES_MAX: u64 = 1 << 30;

impl Reserve {
    /// Reads `auto`, `5%`, `4096 MB` or `4 GB`.
    ///
    /// # Errors
    /// What is needed instead, in words: "must be …".
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
            "must be \"auto\", a part up to \"90%\", or room such as \"4096 MB\" or \"4 GB\""
                .to_owned()
        })
    }

    /// The room to keep free on a file system of a size, both in bytes.
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
    fn room_is_a_part_or_a_size_and_nothing_else() {
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
