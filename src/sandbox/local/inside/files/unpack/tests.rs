//! Archives that are what they should be, and those that try something.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tar::Header;

use super::super::pack::pack;
use super::*;

/// A directory to unpack into, and around it what must not be touched.
struct Place {
    around: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let around = tempfile::tempdir().expect("a directory");
        fs::create_dir(around.path().join("in")).expect("made");
        fs::write(around.path().join("secret"), "untouched").expect("written");
        Self { around }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.around.path().join("in").join(name)
    }

    fn open(&self) -> OwnedFd {
        fs::File::open(self.path("")).expect("opened").into()
    }

    fn take(&self, archive: &[u8]) -> Result<(), String> {
        unpack(self.open(), archive).map_err(|failure| failure.message)
    }

    /// What there is outside: as it was.
    fn assert_untouched(&self) {
        let names = fs::read_dir(self.around.path()).expect("readable");
        let mut names: Vec<_> = names.map(|e| e.expect("readable").file_name()).collect();
        names.sort();
        assert_eq!(names, ["in", "secret"]);
        let secret = self.around.path().join("secret");
        assert_eq!(fs::read(&secret).expect("there"), b"untouched");
        assert_eq!(fs::metadata(&secret).expect("there").nlink(), 1, "linked into the workspace");
    }
}

/// One entry, whatever its name.
fn entry(kind: EntryType, name: &[u8], link: &[u8], content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link);
    header.set_entry_type(kind);
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    header.set_mtime(1_000_000_000);
    header.set_uid(0);
    header.set_gid(0);
    finished(header, content)
}

fn finished(mut header: Header, content: &[u8]) -> Vec<u8> {
    header.set_cksum();
    let mut bytes = [header.as_bytes(), content].concat();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn file(name: &str, content: &str) -> Vec<u8> {
    entry(EntryType::Regular, name.as_bytes(), b"", content.as_bytes())
}

fn pax(record: &str) -> Vec<u8> {
    // A record's length counts itself.
    let len = (1..).find(|len| len.to_string().len() + 2 + record.len() == *len).expect("one");
    entry(EntryType::XHeader, b"pax", b"", format!("{len} {record}\n").as_bytes())
}

fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    [entries.concat(), vec![0; 1024]].concat()
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("there").permissions().mode() & 0o7777
}

#[test]
fn a_directory_survives_packing_and_unpacking() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let (from, to) = (Place::new(), Place::new());
    let long = "long/".to_owned() + &"n".repeat(200);
    fs::create_dir_all(from.path("a/empty")).expect("made");
    fs::create_dir(from.path("long")).expect("made");
    for name in ["a/plain", "-rf", "new\nline", &long] {
        fs::write(from.path(name), name.repeat(300)).expect("written");
    }
    let odd = |place: &Place| {
        place.path("").join(OsStr::from_bytes(&[&b"\xff"[..], &[b'x'; 150]].concat()))
    };
    fs::write(odd(&from), "odd").expect("written");
    fs::set_permissions(from.path("a/plain"), PermissionsExt::from_mode(0o4751)).expect("set");
    fs::set_permissions(from.path("a/empty"), PermissionsExt::from_mode(0o500)).expect("set");
    symlink("/etc/passwd", from.path("a/link")).expect("made");
    symlink("x".repeat(150), from.path("a/far")).expect("made");
    let _socket = std::os::unix::net::UnixListener::bind(from.path("socket")).expect("bound");

    let mut bytes = Vec::new();
    pack(&from.open(), &mut bytes).expect("packed");
    assert_eq!(to.take(&bytes), Ok(()));
    for name in ["a/plain", "-rf", "new\nline", &long] {
        assert_eq!(fs::read(to.path(name)).expect(name), name.repeat(300).as_bytes());
    }
    assert_eq!(fs::read(odd(&to)).expect("there"), b"odd");
    assert_eq!(mode(&to.path("a/plain")), 0o751, "without its setuid bit");
    assert_eq!(mode(&to.path("a/empty")), 0o500);
    let time = |place: &Place| fs::metadata(place.path("a/plain")).expect("there").mtime();
    assert_eq!(time(&to), time(&from));
    assert_eq!(fs::read_link(to.path("a/link")).expect("a link"), Path::new("/etc/passwd"));
    assert_eq!(fs::read_link(to.path("a/far")).expect("a link").as_os_str().len(), 150);
    assert!(!to.path("socket").exists());
    // Again, over what is there.
    assert_eq!(to.take(&bytes), Ok(()));
    let left = fs::read_dir(to.path("a")).expect("readable").count();
    assert_eq!(left, 4, "nothing temporary is left");
}

#[test]
fn every_trick_is_refused_by_the_name_of_its_entry() {
    let link =
        |name: &str, to: &str| entry(EntryType::Symlink, name.as_bytes(), to.as_bytes(), b"");
    let hard = |name: &str, to: &str| entry(EntryType::Link, name.as_bytes(), to.as_bytes(), b"");
    let of = |kind| entry(kind, b"odd", b"", b"");
    let mut sparse = Header::new_gnu();
    sparse.set_entry_type(EntryType::GNUSparse);
    sparse.set_size(0);
    sparse.as_gnu_mut().expect("GNU").name[..4].copy_from_slice(b"hole");
    sparse.as_gnu_mut().expect("GNU").set_real_size(0);
    for (entries, told) in [
        (vec![file("../out", "x")], "\"../out\": its name contains '..'"),
        (vec![file("a/../../out", "x")], "\"a/../../out\": its name contains '..'"),
        (vec![file("/tmp/out", "x")], "\"/tmp/out\": its name is absolute"),
        (vec![pax("path=../out"), file("fine", "x")], "\"../out\": its name contains '..'"),
        (
            vec![link("up", ".."), file("up/secret", "x")],
            "\"up/secret\": it leads through a link that is not followed",
        ),
        (
            vec![link("here", "."), file("here/x", "x")],
            "\"here/x\": it leads through a link that is not followed",
        ),
        (vec![link("up", ".."), entry(EntryType::Directory, b"up/x", b"", b"")], "\"up/x\": "),
        (vec![hard("h", "../secret")], "\"h\": a hard link to \"../secret\": its name contains"),
        (vec![link("up", ".."), hard("h", "up/secret")], "\"h\": a hard link to \"up/secret\": it"),
        (vec![link("l", "../secret"), hard("h", "l")], "that is not a regular file"),
        (vec![hard("h", "none")], "no such file"),
        (vec![link("l", "")], "\"l\": it is a link that points at nothing"),
        (vec![of(EntryType::Char)], "\"odd\": it is a device"),
        (vec![of(EntryType::Block)], "\"odd\": it is a device"),
        (vec![of(EntryType::Fifo)], "\"odd\": it is a FIFO"),
        (vec![of(EntryType::new(b'V'))], "\"odd\": its type 'V' is not known"),
        (vec![finished(sparse, b"")], "it is a sparse file"),
        (vec![pax("GNU.sparse.major=1"), file("s", "x")], "\"s\": it is a sparse file"),
        (vec![pax("size=many"), file("s", "x")], "\"s\": its headers disagree on its size"),
        (vec![file(".", "x")], "it has no name"),
        (vec![entry(EntryType::Directory, b"d", b"", b""), file("d", "x")], "\"d\": "),
        (vec![file("f", "x"), file("f/x", "x")], "\"f/x\": "),
    ] {
        let place = Place::new();
        let failed = place.take(&archive(&entries)).expect_err(told);
        assert!(failed.contains(told), "{failed} instead of {told}");
        place.assert_untouched();
    }
}

#[test]
fn a_size_in_an_extended_header_is_the_size() {
    // To a reader that believes the other one, the content is a header of its own.
    let place = Place::new();
    let inner = file("smuggled", "x");
    let mut header = Header::new_ustar();
    header.as_old_mut().name[..5].copy_from_slice(b"outer");
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_size(0);
    let outer = finished(header, &inner);
    assert_eq!(place.take(&archive(&[pax(&format!("size={}", inner.len())), outer])), Ok(()));
    assert_eq!(fs::read(place.path("outer")).expect("there"), inner);
    assert!(!place.path("smuggled").exists());
}

#[test]
fn an_archive_that_is_cut_off_anywhere_is_said_to_be_and_leaves_no_part_of_a_file() {
    let whole = archive(&[file("one", &"1".repeat(700)), file("two", &"2".repeat(700))]);
    for len in (0..whole.len() - 512).step_by(64) {
        let place = Place::new();
        let failed = place.take(&whole[..len]).expect_err("cut off");
        assert!(!failed.is_empty());
        for name in fs::read_dir(place.path("")).expect("readable") {
            let path = name.expect("readable").path();
            assert_eq!(fs::metadata(&path).expect("there").len(), 700, "{}", path.display());
        }
    }
    let place = Place::new();
    let failed = place.take(&whole[..3 * 512]).expect_err("cut off");
    assert_eq!(failed, "it is cut off after \"one\"");
    let failed = place.take(&whole[..700]).expect_err("cut off");
    assert_eq!(failed, "\"one\": it is cut off: 188 of 700 bytes came");
}

#[test]
fn what_is_kept_in_memory_is_bounded() {
    let place = Place::new();
    let name = vec![b'n'; 2 * 1024 * 1024];
    let long = entry(EntryType::GNULongName, b"././@LongLink", b"", &name);
    let failed = place.take(&archive(&[long, file("f", "x")])).expect_err("too long");
    assert!(failed.contains("longer than 1 MiB"), "{failed}");
    let many = file("f", "").repeat(ENTRIES_MAX + 1);
    let failed = place.take(&many).expect_err("too many");
    assert_eq!(failed, "\"f\": more than 200000 entries");
}

#[test]
fn a_link_that_is_there_gives_way_and_is_not_written_through() {
    let place = Place::new();
    symlink("../secret", place.path("f")).expect("made");
    assert_eq!(place.take(&archive(&[file("f", "new")])), Ok(()));
    assert_eq!(fs::read(place.path("f")).expect("there"), b"new");
    assert!(!place.path("f").is_symlink());
    place.assert_untouched();
}

/// Archives that are nearly right: entries of every kind whose names and targets try to lead out.
fn nearly_an_archive() -> impl Strategy<Value = Vec<u8>> {
    let name = prop::sample::select(vec![
        "a", "a/b", "a/b/c", "l", "l/secret", "../x", "..", ".", "/x", "", "a/", "secret", "l/../x",
    ]);
    let target =
        prop::sample::select(vec!["..", "../secret", "/", "a", "l", ".", "l/secret", "a/b", ""]);
    let kind = prop::sample::select(b"0123456LKxgSV\0".to_vec());
    let one = (kind, name, target, prop::collection::vec(any::<u8>(), 0..600)).prop_map(
        |(kind, name, target, content)| {
            entry(EntryType::new(kind), name.as_bytes(), target.as_bytes(), &content)
        },
    );
    let flips = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    (prop::collection::vec(one, 0..6), flips).prop_map(|(entries, flips)| {
        let mut bytes = archive(&entries);
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_bytes_make_reading_panic_or_lead_outside(
        bytes in prop_oneof![prop::collection::vec(any::<u8>(), 0..3000), nearly_an_archive()],
    ) {
        let place = Place::new();
        let _ = place.take(&bytes);
        place.assert_untouched();
    }
}
