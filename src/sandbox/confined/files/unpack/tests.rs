//! Valid archives, and hostile ones.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tar::{Archive, Entry, EntryType, Header};

use super::super::pack::{content, pack};
use super::*;
use crate::sandbox::confined::MESSAGE_LEN_MAX;
use crate::sandbox::confined::archive_reader::ENTRIES_MAX;

/// A directory to unpack into, within a directory that must not change.
struct Place {
    scope_event: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let scope_event = tempfile::tempdir().expect("a directory");
        fs::create_dir(scope_event.path().join("in")).expect("made");
        fs::write(scope_event.path().join("secret"), "untouched").expect("written");
        Self { scope_event }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scope_event.path().join("in").join(name)
    }

    fn open(&self) -> OwnedFd {
        fs::File::open(self.path("")).expect("opened").into()
    }

    fn take(&self, archive: &[u8]) -> Result<(), String> {
        unpack(self.open(), archive).map_err(|failure| failure.message)
    }

    /// Checks that everything outside is unchanged.
    fn assert_untouched(&self) {
        let names = fs::read_dir(self.scope_event.path()).expect("readable");
        let mut names: Vec<_> = names.map(|e| e.expect("readable").file_name()).collect();
        names.sort();
        assert_eq!(names, ["in", "secret"]);
        let secret = self.scope_event.path().join("secret");
        assert_eq!(fs::read(&secret).expect("there"), b"untouched");
        assert_eq!(fs::metadata(&secret).expect("there").nlink(), 1, "linked into the workspace");
    }
}

/// One entry of any name.
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
    // A record's length includes itself.
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
    // Once more, over the existing files.
    assert_eq!(to.take(&bytes), Ok(()));
    let left = fs::read_dir(to.path("a")).expect("readable").count();
    assert_eq!(left, 4, "nothing temporary is left");
}

#[test]
fn every_hostile_entry_is_refused_by_name() {
    let link =
        |name: &str, to: &str| entry(EntryType::Symlink, name.as_bytes(), to.as_bytes(), b"");
    let hard = |name: &str, to: &str| entry(EntryType::Link, name.as_bytes(), to.as_bytes(), b"");
    let of = |kind| entry(kind, b"odd", b"", b"");
    let mut sparse = Header::new_gnu();
    sparse.set_entry_type(EntryType::GNUSparse);
    sparse.set_size(0);
    sparse.as_gnu_mut().expect("GNU").name[..4].copy_from_slice(b"hole");
    sparse.as_gnu_mut().expect("GNU").set_real_size(0);
    for (entries, reason) in [
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
        (vec![link("l", "")], "\"l\": it is a link without a valid target"),
        (vec![of(EntryType::Char)], "\"odd\": it is a device"),
        (vec![of(EntryType::Block)], "\"odd\": it is a device"),
        (vec![of(EntryType::Fifo)], "\"odd\": it is a FIFO"),
        (vec![of(EntryType::new(b'V'))], "\"odd\": its type 'V' is not supported"),
        (vec![finished(sparse, b"")], "it is a sparse file"),
        (vec![pax("GNU.sparse.major=1"), file("s", "x")], "\"s\": it is a sparse file"),
        (vec![pax("size=many"), file("s", "x")], "\"s\": its headers disagree on its size"),
        (vec![file(".", "x")], "it has no name"),
        (vec![entry(EntryType::Directory, b"d", b"", b""), file("d", "x")], "\"d\": "),
        (vec![file("f", "x"), file("f/x", "x")], "\"f/x\": "),
    ] {
        let place = Place::new();
        let failed = place.take(&archive(&entries)).expect_err(reason);
        assert!(failed.contains(reason), "{failed} instead of {reason}");
        place.assert_untouched();
    }
}

#[test]
fn long_names_leave_room_for_the_reason() {
    let long = "\u{1}/".repeat(1_500);
    let place = Place::new();
    let hard = entry(EntryType::Link, b"short", b"short", b"");
    let records = [pax(&format!("path={long}n")), pax(&format!("linkpath={long}..")), hard];
    // Extended headers hold both; the last record of each key wins.
    let both = [&records[0][512..], &records[1][512..]].concat();
    let both: Vec<u8> = both.into_iter().filter(|byte| *byte != 0).collect();
    let header = entry(EntryType::XHeader, b"pax", b"", &both);
    let failed = unpack(place.open(), &archive(&[header, records[2].clone()])[..]);
    let RequestFailure { message, .. } = failed.expect_err("it leads outside");
    assert!(message.len() <= MESSAGE_LEN_MAX, "nothing is cut off: {} bytes", message.len());
    assert!(message.starts_with("\"\\u{1}/") && message.contains("a hard link to"), "{message}");
    assert!(message.ends_with("its name contains '..'"), "{message}");
}

#[test]
fn a_size_in_an_extended_header_is_the_size() {
    // To a reader that uses the other size, the content is a header.
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
fn a_cut_off_archive_is_reported_and_leaves_no_part_of_a_file() {
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
fn memory_use_is_bounded() {
    let place = Place::new();
    let name = vec![b'n'; 2 * 1024 * 1024];
    let long = entry(EntryType::GNULongName, b"././@LongLink", b"", &name);
    let failed = place.take(&archive(&[long, file("f", "x")])).expect_err("too long");
    assert!(failed.contains("longer than 1 MiB"), "{failed}");
    let huge = 900 * 1024 * 1024;
    for (kind, is_old, why) in [
        (EntryType::XGlobalHeader, false, "longer than 1 MiB"),
        (EntryType::XGlobalHeader, true, "longer than 1 MiB"),
        (EntryType::XHeader, true, "is invalid"),
    ] {
        let mut header = if is_old { Header::new_old() } else { Header::new_ustar() };
        header.set_entry_type(kind);
        header.set_size(huge);
        header.set_mode(0o644);
        header.set_cksum();
        let mut content = io::repeat(0).take(64 << 20);
        let archive = header.as_bytes().chain(&mut content);
        let failed = unpack(place.open(), archive).expect_err("it is refused").message;
        assert!(failed.contains(why), "{kind:?}: {failed}");
        assert!(content.limit() > 63 << 20, "{kind:?}: nothing of it is read");
    }
}

/// Entries without end, without a file that holds them.
struct Endless<'a> {
    entry: &'a [u8],
    left: usize,
    at: usize,
}

impl Read for &mut Endless<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Ok(0);
        }
        let mut rest = &self.entry[self.at..];
        let len = rest.read(into)?;
        self.at = (self.at + len) % self.entry.len();
        self.left -= usize::from(self.at == 0);
        Ok(len)
    }
}

#[test]
fn an_archive_of_a_million_entries_is_refused_and_not_read_further() {
    const MILLION: usize = 1_000_000;
    let place = Place::new();
    let one = entry(EntryType::XGlobalHeader, b"pax_global_header", b"", b"");
    let mut many = Endless { entry: &one, left: MILLION, at: 0 };
    let failed = unpack(place.open(), &mut many).expect_err("too many");
    assert_eq!(failed.message, "\"pax_global_header\": more than 200000 entries");
    assert_eq!(many.left, MILLION - ENTRIES_MAX - 1);
}

#[test]
fn names_of_closed_directories_are_kept_up_to_a_bound() {
    let place = Place::new();
    let above = ["d".repeat(200).as_str(); 20].join("/");
    let name = |number: usize| format!("{above}/{number:05}");
    let fit = CLOSED_LEN_MAX / name(0).len();
    let mut many = Vec::new();
    for number in 0..=fit {
        let name = name(number);
        many.extend(entry(EntryType::GNULongName, b"././@LongLink", b"", name.as_bytes()));
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Directory);
        header.set_size(0);
        header.set_mode(0o500);
        many.extend(finished(header, b""));
    }
    let failed = place.take(&many).expect_err("too many");
    let expected = "too many directories that their owner may not write to";
    let end = format!("/{fit:05}\": {expected}");
    assert!(failed.ends_with(&end), "only the last is too many: {failed}");
}

#[test]
fn only_permission_bits_are_packed_and_unpacked() {
    let place = Place::new();
    let of = |kind, name: &[u8]| {
        let mut header = Header::new_ustar();
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        header.set_entry_type(kind);
        header.set_size(0);
        header.set_mode(0o7755);
        header.set_mtime(0);
        finished(header, b"")
    };
    let both = [of(EntryType::Directory, b"d"), of(EntryType::Regular, b"f")];
    assert_eq!(place.take(&archive(&both)), Ok(()));
    for name in ["d", "f"] {
        assert_eq!(mode(&place.path(name)), 0o755, "{name} was taken");
        fs::set_permissions(place.path(name), PermissionsExt::from_mode(0o7711)).expect("set");
    }
    let mut bytes = Vec::new();
    pack(&place.open(), &mut bytes).expect("packed");
    let entries = entries_of(&bytes);
    assert!(
        entries.len() == 2 && entries.iter().all(|entry| entry.contains(" 711 ")),
        "{entries:?}"
    );
}

#[test]
fn an_existing_link_is_replaced_and_not_written_through() {
    let place = Place::new();
    symlink("../secret", place.path("f")).expect("made");
    assert_eq!(place.take(&archive(&[file("f", "new")])), Ok(()));
    assert_eq!(fs::read(place.path("f")).expect("there"), b"new");
    assert!(!place.path("f").is_symlink());
    place.assert_untouched();
}

/// Archives that are nearly valid: entries of every kind whose names and targets try to lead
/// outside.
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
    #![proptest_config(crate::fuzz::cases(512))]

    #[test]
    fn no_bytes_make_reading_panic_or_lead_outside(
        bytes in prop_oneof![prop::collection::vec(any::<u8>(), 0..3000), nearly_an_archive()],
    ) {
        let place = Place::new();
        let _ = place.take(&bytes);
        place.assert_untouched();
    }
}

proptest! {
    #![proptest_config(crate::fuzz::cases(128))]

    #[test]
    fn no_changed_archive_leads_outside_and_unpacked_files_can_be_packed_again(
        changes in prop::collection::vec(change(), 0..5),
    ) {
        let bytes = changed(right_archive(), &changes);
        let place = Place::new();
        let taken = place.take(&bytes);
        place.assert_untouched();
        let mut given = Vec::new();
        // What an ordinary user cannot read is left out, and named in one more file.
        if taken.is_ok() && !pack(&place.open(), &mut given).expect("packed") {
            let (again, mut given_again) = (Place::new(), Vec::new());
            prop_assert_eq!(again.take(&given), Ok(()));
            if !pack(&again.open(), &mut given_again).expect("packed") {
                prop_assert_eq!(entries_of(&given), entries_of(&given_again));
            }
        }
    }
}

/// A change of an archive's bytes.
#[derive(Clone, Debug)]
enum ArchiveChange {
    /// Another byte in a block; a valid header stays valid.
    Byte(prop::sample::Index, usize, u8),
    /// Repeats a block elsewhere.
    Repeat(prop::sample::Index, prop::sample::Index),
    /// Removes a block.
    Remove(prop::sample::Index),
    /// Swaps two blocks.
    Swap(prop::sample::Index, prop::sample::Index),
}

fn change() -> impl Strategy<Value = ArchiveChange> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        4 => (at(), 0..512_usize, any::<u8>()).prop_map(|(at, byte, to)| ArchiveChange::Byte(at, byte, to)),
        2 => (at(), at()).prop_map(|(from, to)| ArchiveChange::Repeat(from, to)),
        1 => at().prop_map(ArchiveChange::Remove),
        1 => (at(), at()).prop_map(|(one, other)| ArchiveChange::Swap(one, other)),
    ]
}

/// An entry of each supported kind, with short, long, and extended names.
fn right_archive() -> Vec<u8> {
    archive(&[
        entry(EntryType::Directory, b"d", b"", b""),
        file("d/f", &"f".repeat(600)),
        entry(EntryType::Link, b"d/h", b"d/f", b""),
        entry(EntryType::Symlink, b"d/l", b"../secret", b""),
        entry(EntryType::GNULongName, b"././@LongLink", b"", &[b'n'; 200]),
        file("n", "long"),
        pax("path=p/q"),
        file("p", "extended"),
        pax("size=3"),
        file("s", "abc"),
    ])
}

fn changed(bytes: Vec<u8>, changes: &[ArchiveChange]) -> Vec<u8> {
    let mut blocks: Vec<[u8; 512]> =
        bytes.chunks_exact(512).map(|block| block.try_into().expect("a block")).collect();
    for change in changes {
        if blocks.is_empty() {
            break;
        }
        let len = blocks.len();
        match change {
            ArchiveChange::Byte(at, byte, to) => {
                let mut header = Header::from_byte_slice(&blocks[at.index(len)]).clone();
                let was_right = is_right(&header);
                header.as_mut_bytes()[*byte] = *to;
                if was_right {
                    header.set_cksum();
                }
                blocks[at.index(len)] = *header.as_bytes();
            }
            ArchiveChange::Repeat(from, to) => {
                blocks.insert(to.index(len), blocks[from.index(len)])
            }
            ArchiveChange::Remove(at) => drop(blocks.remove(at.index(len))),
            ArchiveChange::Swap(one, other) => blocks.swap(one.index(len), other.index(len)),
        }
    }
    blocks.concat()
}

fn is_right(header: &Header) -> bool {
    let mut summed = header.clone();
    summed.set_cksum();
    header.as_old().cksum == summed.as_old().cksum
}

/// A line for each entry; without the times of directories, which unpacking changes.
fn entries_of(archive: &[u8]) -> Vec<String> {
    let mut archive = Archive::new(archive);
    let line = |entry: std::io::Result<Entry<'_, &[u8]>>| {
        let entry = entry.expect("an entry");
        let header = entry.header();
        let (path, link) = (entry.path_bytes(), entry.link_name_bytes());
        let kind = header.entry_type();
        let mode = header.mode().expect("a mode");
        let time = (kind == EntryType::Regular).then(|| header.mtime().expect("a time"));
        format!("{path:?} {link:?} {kind:?} {mode:o} {} {time:?}", entry.size())
    };
    archive.entries().expect("an archive").map(line).collect()
}

#[test]
fn a_workspace_is_packed_while_its_files_change() {
    let (from, to) = (Place::new(), Place::new());
    fs::write(from.path("stays"), "here").expect("written");
    let changing = from.path("changing");
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                fs::write(&changing, "x").expect("written");
                fs::remove_file(&changing).expect("removed");
                fs::create_dir(&changing).expect("made");
                fs::remove_dir(&changing).expect("removed");
                symlink("stays", &changing).expect("made");
                fs::remove_file(&changing).expect("removed");
            }
        });
        let packed = (0..1000).try_for_each(|_| pack(&from.open(), std::io::sink()).map(drop));
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        packed.expect("packed");
    });

    // As if the first file shrank and the second one grew after they were opened.
    let mut archive = Vec::new();
    for (name, now, len) in [("shrunk", "abc", 600), ("grown", "abcdef", 2)] {
        fs::write(from.path(name), now).expect("written");
        let file = OwnedFd::from(fs::File::open(from.path(name)).expect("opened"));
        let mut stat = rustix::fs::fstat(&file).expect("its metadata");
        stat.st_size = len;
        content(&mut archive, name.as_bytes(), file, &stat).expect("written");
    }
    archive.resize(archive.len() + 1024, 0);
    assert_eq!(to.take(&archive), Ok(()));
    let shrunk = [&b"abc"[..], &[0; 597]].concat();
    assert_eq!(fs::read(to.path("shrunk")).expect("there"), shrunk);
    assert_eq!(fs::read(to.path("grown")).expect("there"), b"ab");
}

#[test]
fn the_last_mode_of_a_directory_wins_in_any_order() {
    let place = Place::new();
    let directory = |name: &str, mode: u32| {
        let mut header = Header::new_ustar();
        header.set_path(name).expect("fits");
        header.set_entry_type(EntryType::Directory);
        header.set_size(0);
        header.set_mode(mode);
        finished(header, b"")
    };
    let entries = [
        directory("a/b/", 0o055),
        directory("a/", 0o044),
        directory("twice/", 0o500),
        directory("twice/", 0o555),
        directory("opened/", 0o500),
        directory("opened/", 0o750),
    ];
    assert_eq!(place.take(&archive(&entries)), Ok(()));
    for (name, expected) in [("a", 0o044), ("twice", 0o555), ("opened", 0o750)] {
        assert_eq!(mode(&place.path(name)), expected, "{name}");
    }
    fs::set_permissions(place.path("a"), PermissionsExt::from_mode(0o700)).expect("set");
    assert_eq!(mode(&place.path("a/b")), 0o055);
}
