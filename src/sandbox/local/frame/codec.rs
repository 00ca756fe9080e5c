//! The values that packets are made of: numbers little-endian, lists and texts after their length.

/// Longest sentence that an answer may carry, in bytes.
pub const MESSAGE_LEN_MAX: usize = 1024;

pub fn put_bool(out: &mut Vec<u8>, value: bool) {
    out.push(u8::from(value));
}

pub fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, u32::try_from(bytes.len()).expect("callers stay below REQUEST_LEN_MAX"));
    out.extend_from_slice(bytes);
}

pub fn put_text(out: &mut Vec<u8>, text: &str) {
    let cut = (0..=text.len().min(MESSAGE_LEN_MAX)).rev().find(|at| text.is_char_boundary(*at));
    put_bytes(out, &text.as_bytes()[..cut.unwrap_or(0)]);
}

pub fn put_list(out: &mut Vec<u8>, list: &[Vec<u8>]) {
    put_u32(out, u32::try_from(list.len()).expect("callers stay below REQUEST_LEN_MAX"));
    for bytes in list {
        put_bytes(out, bytes);
    }
}

pub fn put_path(out: &mut Vec<u8>, kind: u8, id: u64, path: &[u8]) {
    out.push(kind);
    put_u64(out, id);
    put_bytes(out, path);
}

/// Takes values off the front of a packet.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        Some(head)
    }

    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub fn u8(&mut self) -> Option<u8> {
        Some(self.array::<1>()?[0])
    }

    pub fn bool(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u32()?).ok()?;
        self.take(len)
    }

    pub fn text(&mut self) -> Option<String> {
        let bytes = self.bytes()?;
        if bytes.len() > MESSAGE_LEN_MAX {
            return None;
        }
        String::from_utf8(bytes.to_vec()).ok()
    }

    pub fn list(&mut self) -> Option<Vec<Vec<u8>>> {
        let count = self.u32()?;
        // Grown as entries are really there: the announced count allocates nothing.
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(self.bytes()?.to_vec());
        }
        Some(list)
    }

    pub fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}
