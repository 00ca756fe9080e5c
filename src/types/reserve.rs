//! Room that is kept free on a file system.

/// How much of a file system is kept free, as it is configured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Reserve {
    /// A twentieth, but at least what memory takes up between a few looks at it, 1 GB or a quarter
    /// of a small one, and at most 4 GB.
    #[default]
    Auto,
    /// A part of the whole, in percent.
    Percent(f64),
    /// So much, in MiB; 0 keeps nothing free.
    Megabytes(u64),
}

/// The least and the most that is kept free where nothing is configured, in bytes.
const AUTO: std::ops::RangeInclusive<u64> = 1 << 30..=4 << 30;

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
            Self::Auto => (size / 20).clamp(*AUTO.start(), *AUTO.end()).min(size / 4),
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
        for (size, kept) in [(40 * GB, 2 * GB), (10 * GB, GB), (2 * GB, GB / 2), (0, 0)] {
            assert_eq!(Reserve::Auto.of(size), kept, "a small disk keeps less, but enough: {size}");
        }
        for text in
            ["", "5", "MB", "-1 MB", "91%", "NaN%", "-1%", "5 TB", "99999999999 GB", "1.5 GB"]
        {
            assert!(Reserve::parse(text).is_err_and(|why| why.starts_with("must be")), "{text:?}");
        }
    }
}
