//! Which addresses belong to the machine that the server runs on.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use super::policy::HostAddresses;

/// The machine that the server runs on.
pub struct ThisMachine;

impl HostAddresses for ThisMachine {
    /// Tries to bind the address, which works for the machine's own addresses only, including secondary
    /// ones. If the machine allows non-local binds (as load balancers do), the kernel's routing tables
    /// decide. They also know the local networks of IPv6, in which an address cannot be bound. If
    /// neither is available, the address counts as the machine's own.
    fn is_own(&self, address: IpAddr) -> bool {
        match UdpSocket::bind((address, 0)) {
            Ok(_closed_again) => !binds_anything(address) || is_in_tables(address).unwrap_or(true),
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                address.is_ipv6() && is_in_tables(address).unwrap_or(false)
            }
            Err(_) => true,
        }
    }
}

/// Whether the machine allows non-local binds of this family.
fn binds_anything(address: IpAddr) -> bool {
    let family = if address.is_ipv4() { "ipv4" } else { "ipv6" };
    let setting = fs::read_to_string(format!("/proc/sys/net/{family}/ip_nonlocal_bind"));
    setting.is_ok_and(|setting| setting.trim() != "0")
}

/// Whether the routing tables have the address as local; `None` if they cannot be read.
fn is_in_tables(address: IpAddr) -> Option<bool> {
    match address {
        IpAddr::V4(v4) => Some(is_local(&fs::read_to_string("/proc/net/fib_trie").ok()?, v4)),
        IpAddr::V6(v6) => Some(is_routed(&fs::read_to_string("/proc/net/ipv6_route").ok()?, v6)),
    }
}

/// Whether a table (`/proc/net/fib_trie`) has a local route to an address. Each leaf, `|-- 10.0.0.0`, is
/// followed by its routes, `/8 host LOCAL`.
fn is_local(table: &str, address: Ipv4Addr) -> bool {
    let mut leaf = None;
    table.lines().map(str::trim_start).any(|line| {
        if let Some(begin) = line.strip_prefix("|-- ") {
            leaf = begin.trim_end().parse::<Ipv4Addr>().ok();
            return false;
        }
        let len = line.strip_prefix('/').and_then(|rest| rest.strip_suffix(" host LOCAL"));
        let len = len.and_then(|len| len.parse::<u32>().ok()).filter(|len| *len <= 32);
        let (Some(leaf), Some(len)) = (leaf, len) else { return false };
        let differing = leaf.to_bits() ^ address.to_bits();
        differing.leading_zeros() >= len
    })
}

/// Whether a table (`/proc/net/ipv6_route`) has a local route to an address. A line has the hexadecimal
/// destination first, the prefix length second, and the flags last but one.
fn is_routed(table: &str, address: Ipv6Addr) -> bool {
    /// `RTF_LOCAL` of the kernel's `include/uapi/linux/ipv6_route.h`.
    const LOCAL: u32 = 0x8000_0000;
    let matches = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [destination, len, .., flags, _interface] = words[..] else { return None };
        let destination = u128::from_str_radix(destination, 16).ok()?;
        let len = u32::from_str_radix(len, 16).ok()?;
        let is_local = u32::from_str_radix(flags, 16).ok()? & LOCAL != 0;
        let differing = destination ^ address.to_bits();
        Some(is_local && differing.leading_zeros() >= len)
    };
    table.lines().any(|line| matches(line).unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn local_addresses_are_own() {
        assert!(ThisMachine.is_own(Ipv4Addr::LOCALHOST.into()));
        assert!(ThisMachine.is_own(Ipv4Addr::new(127, 9, 9, 9).into()));
        assert!(!ThisMachine.is_own(Ipv4Addr::new(192, 0, 2, 1).into()));
    }

    #[test]
    fn tables_are_read_as_the_kernel_writes_them() {
        let table = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     \
            +-- 127.0.0.0/8 2 0 2\n        |-- 127.0.0.0\n           /8 host LOCAL\n        \
            |-- 127.0.0.1\n           /32 host LOCAL\n        |-- 127.255.255.255\n           \
            /32 link BROADCAST\n     |-- 140.82.0.0\n        /24 link UNICAST\n     \
            |-- 140.82.0.9\n        /32 host LOCAL\n";
        for (address, is_own) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("140.82.0.9", true),
            ("140.82.0.8", false),
            ("140.82.0.0", false),
            ("128.0.0.0", false),
            ("1.2.3.4", false),
        ] {
            assert_eq!(is_local(table, address.parse().expect("an address")), is_own, "{address}");
        }
        let route = |destination: &str, len: &str, flags: &str| {
            let none = "0".repeat(32);
            format!(
                "{destination} {len} {none} 00 {none} 00000000 00000001 00000000 {flags}       lo\n"
            )
        };
        let table = [
            route("fd000000000000000000000000000002", "80", "80200001"),
            route("fd000000000000000000000000000000", "40", "00000001"),
            route("20010db8000900000000000000000000", "40", "80000001"),
            route(&"0".repeat(32), "00", "00200200"),
        ]
        .concat();
        for (address, is_own) in [
            ("fd00::2", true),
            ("fd00::3", false),
            ("2001:db8:9::77", true),
            ("2001:db8:a::77", false),
            ("::", false),
        ] {
            assert_eq!(
                is_routed(&table, address.parse().expect("an address")),
                is_own,
                "{address}"
            );
        }
    }

    /// Set when the test below runs in the namespaces that it created.
    const INSIDE: &str = "ISSUEBOX_TEST_MACHINE_INSIDE";

    #[test]
    #[ignore = "needs unshare(1) and user namespaces; run by .ci/run"]
    fn local_addresses_are_own_if_non_local_binds_are_allowed() {
        if std::env::var_os(INSIDE).is_some() {
            crate::sandbox::local::raise_loopback().expect("it is ours");
            let foreign = Ipv4Addr::new(192, 0, 2, 1).into();
            UdpSocket::bind((foreign, 0)).expect("non-local binds are allowed");
            assert!(!ThisMachine.is_own(foreign));
            assert!(!ThisMachine.is_own("2001:db8::1".parse().expect("an address")));
            assert!(ThisMachine.is_own(Ipv4Addr::new(127, 9, 9, 9).into()));
            assert!(ThisMachine.is_own(Ipv6Addr::LOCALHOST.into()));
            return;
        }
        let script =
            "for v in 4 6; do echo 1 > /proc/sys/net/ipv$v/ip_nonlocal_bind; done; exec \"$@\"";
        let test = "egress::machine::tests::local_addresses_are_own_if_non_local_binds_are_allowed";
        let out = Command::new("unshare")
            .args(["-Urn", "sh", "-c", script, "sh"])
            .arg(std::env::current_exe().expect("known"))
            .args(["--include-ignored", "--exact", test])
            .env(INSIDE, "1")
            .output()
            .expect("unshare is there");
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && text.contains("1 passed"), "{text} {out:?}");
    }

    /// In its own network namespace, where the addresses have no other owner.
    #[test]
    #[ignore = "needs unshare(1), ip(8) and user namespaces; run by .ci/run"]
    fn secondary_addresses_are_own_too() {
        const APART: &str = "ISSUEBOX_TEST_APART";
        let run = |program: &str, args: &[&str]| {
            let done = Command::new(program).args(args).env(APART, "1").status();
            assert!(done.expect("it must be installed").success(), "{program} {args:?}");
        };
        if std::env::var_os(APART).is_none() {
            let itself = std::env::current_exe().expect("known");
            let test = format!("{}::second_addresses_are_one_s_own_as_well", module_path!());
            let (_, test) = test.split_once("::").expect("below the crate");
            let itself = itself.to_str().expect("text");
            return run("unshare", &["-Urn", itself, "--exact", test, "--ignored"]);
        }
        let ip = |line: &str| run("ip", &line.split(' ').collect::<Vec<_>>());
        let is_own = |address: &str| ThisMachine.is_own(address.parse().expect("an address"));
        // Before any interface is up, every address counts as own.
        ip("link set lo up");
        let addresses = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"];
        assert!(addresses.iter().all(|address| !is_own(address)), "not yet configured");
        ip("addr add 192.0.2.1/32 dev lo");
        ip("addr add 192.0.2.2/32 dev lo");
        ip("addr add 2001:db8::1/128 dev lo nodad");
        ip("addr add 2001:db8::2/128 dev lo nodad");
        for address in addresses {
            assert!(is_own(address), "{address} is this machine's");
        }
        assert!(!is_own("192.0.2.3") && !is_own("2001:db8::3"), "a neighbour's address is not");
        ip("-6 route add local 2001:db8:9::/64 dev lo");
        assert!(
            is_own("2001:db8:9::77") && !is_own("2001:db8:a::77"),
            "nor one outside the network"
        );
    }
}
