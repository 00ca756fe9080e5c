//! Which addresses are public, by IANA's registries of special addresses (RFC 6890 and its successors).
//!
//! An IPv4 address has many forms in IPv6. The mapped form, which the kernel treats as IPv4, is
//! classified by the address in it, and so is a NAT64 translator's form. The others are tunnels and are
//! always refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The class of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressClass {
    /// On the internet.
    Public,
    /// In a private network; the text describes it.
    Private(&'static str),
    /// Off limits for every sandbox; the text describes it.
    Never(&'static str),
}

const METADATA: AddressClass = AddressClass::Never("a cloud's metadata service");

/// Metadata services of clouds outside of link-local addresses: Amazon (for machines and pods), Google,
/// Alibaba, Oracle, Azure's host.
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
];

/// The address that the kernel connects to: the IPv4 address of a mapped one.
pub fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// Classifies an address.
pub fn classify(address: IpAddr) -> AddressClass {
    match canonical(address) {
        IpAddr::V4(v4) => of_v4(v4),
        IpAddr::V6(v6) => of_v6(v6),
    }
}

fn of_v4(address: Ipv4Addr) -> AddressClass {
    if METADATA_V4.contains(&address) {
        return METADATA;
    }
    match address.octets() {
        [0, ..] => AddressClass::Never("an unspecified address"),
        [169, 254, ..] => AddressClass::Never("a link-local address"),
        [224..=239, ..] => AddressClass::Never("a multicast address"),
        [255, 255, 255, 255] => AddressClass::Never("the broadcast address"),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => {
            AddressClass::Private("a private network")
        }
        [127, ..] => AddressClass::Private("loopback"),
        [100, 64..=127, ..] => AddressClass::Private("a carrier's network"),
        [198, 18..=19, ..] => AddressClass::Private("a benchmark network"),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => {
            AddressClass::Private("a documentation address")
        }
        [192, 0, 0, _] | [192, 88, 99, _] | [240..=255, ..] => {
            AddressClass::Private("a reserved address")
        }
        _ => AddressClass::Public,
    }
}

fn of_v6(address: Ipv6Addr) -> AddressClass {
    if METADATA_V6.contains(&address) {
        return METADATA;
    }
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => AddressClass::Never("an unspecified address"),
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressClass::Private("loopback"),
        [0xfe80..=0xfebf, ..] => AddressClass::Never("a link-local address"),
        [0xff00..=0xffff, ..] => AddressClass::Never("a multicast address"),
        [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => AddressClass::Private("a private network"),
        // NAT64: the translator connects to the address in it.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            let [a, b, c, d] = [high.to_be_bytes(), low.to_be_bytes()].concat()[..] else {
                return AddressClass::Never("an unspecified address");
            };
            of_v4(Ipv4Addr::new(a, b, c, d))
        }
        // 6to4 and Teredo, each with an IPv4 address in it; and addresses reserved for protocols.
        [0x2002, ..] => AddressClass::Never("a tunnel to an IPv4 address"),
        [0x2001, 0, ..] => AddressClass::Never("a tunnel to an IPv4 address"),
        [0x2001, 0x1..=0x1ff, ..] => AddressClass::Private("a reserved address"),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => {
            AddressClass::Private("a documentation address")
        }
        // Addresses allocated to the internet.
        [0x2000..=0x3fff, ..] => AddressClass::Public,
        // Includes IPv4-compatible and IPv4-translated forms, and other NAT64 prefixes.
        _ => AddressClass::Never("a reserved address"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> AddressClass {
        classify(text.parse().unwrap_or_else(|_| panic!("{text} must be an address")))
    }

    #[test]
    fn public_addresses_are_public() {
        for text in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "140.82.121.4",
            "2606:50c0:8000::153",
            "2a00:1450::1",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
        ] {
            assert_eq!(of(text), AddressClass::Public, "{text}");
        }
    }

    #[test]
    fn addresses_of_private_networks_are_private() {
        for text in [
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "240.0.0.1",
            "255.255.255.254",
            "::1",
            "fc00::1",
            "fd12:3456::1",
            "fec0::1",
            "2001:db8::1",
            "2001:2::1",
            "2001:20::1",
            "3fff::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b::7f00:1",
        ] {
            assert!(matches!(of(text), AddressClass::Private(_)), "{text} is {:?}", of(text));
        }
    }

    #[test]
    fn metadata_and_unusable_addresses_are_never_reached() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "169.254.170.2",
            "168.63.129.16",
            "100.100.100.200",
            "192.0.0.192",
            "224.0.0.1",
            "239.255.255.255",
            "255.255.255.255",
            "::",
            "fe80::1",
            "febf::1",
            "ff02::1",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "::ffff:169.254.169.254",
            "::ffff:0.0.0.0",
            "64:ff9b::169.254.169.254",
            "::169.254.169.254",
            "::127.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b:1::127.0.0.1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "100::1",
            "5f00::1",
            "4000::1",
        ] {
            assert!(matches!(of(text), AddressClass::Never(_)), "{text} is {:?}", of(text));
        }
    }
}
